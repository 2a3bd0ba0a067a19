package cli

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows a bar on standard error once a transfer has taken a second, if
// a person looks at it.
func (a *app) progress(ctx context.Context, name string) *bar {
	return &bar{ctx: ctx, out: a.env.Stderr, name: clean(name), start: a.env.Now(), now: a.env.Now,
		show: a.style.errT && !a.askedJSON(), width: a.style.errWidth}
}

const (
	// quiet is how long a transfer may take without a bar.
	quiet = time.Second
	// roomy is how many columns a bar takes with all that there is to say.
	roomy = 72
)

// cut shortens text to so many columns.
func cut(s string, n int) string {
	if measure(s) <= n {
		return s
	}
	return columnsOf.Truncate(s, n, "…")
}

// fitting is a decorator that is left out where there is no room for it.
type fitting struct {
	decor.Decorator
	fits func() bool
}

func (f fitting) Unwrap() decor.Decorator { return f.Decorator }

func (f fitting) Decor(s decor.Statistics) (string, int) {
	text, width := f.Decorator.Decor(s)
	if !f.fits() {
		return "", 0
	}
	return text, width
}

type bar struct {
	ctx   context.Context
	out   io.Writer
	name  string
	show  bool
	width func() int // columns of the terminal, which may change; 0: it doesn't say
	start time.Time
	now   func() time.Time

	mu    sync.Mutex
	ended bool
	all   *mpb.Progress
	one   *mpb.Bar
}

// tell implements client.Progress.
func (b *bar) tell(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.show || b.ended {
		return
	}
	if b.one == nil {
		if done >= total || b.now().Sub(b.start) < quiet {
			return
		}
		b.all = mpb.NewWithContext(b.ctx, mpb.WithOutput(b.out), mpb.WithWidth(48))
		narrow := func() bool { n := b.width(); return n > 0 && n < roomy }
		wide := func() bool { return !narrow() }
		b.one = b.all.AddBar(total,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.label() + " " })),
			mpb.AppendDecorators(
				fitting{decor.CountersKibiByte("% .1f / % .1f  "), wide},
				fitting{decor.AverageSpeed(decor.SizeB1024(0), "% .1f"), wide}, fitting{decor.Name("  "), wide},
				fitting{decor.Percentage(), narrow}, fitting{decor.Name("  "), narrow},
				decor.AverageETA(decor.ET_STYLE_GO),
			),
		)
		b.one.DecoratorAverageAdjust(b.start)
	}
	b.one.SetCurrent(done)
}

// label is the name, or as much of it as leaves room for the rest.
func (b *bar) label() string {
	if n := b.width(); n > 0 {
		return cut(b.name, n/3)
	}
	return b.name
}

// end takes the bar away and waits for its goroutines.
func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.one != nil {
		b.one.Abort(true)
		b.all.Wait()
	}
}
