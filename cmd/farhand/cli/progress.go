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
	if r := []rune(s); len(r) > n {
		return string(r[:max(n-1, 0)]) + "…"
	}
	return s
}

type bar struct {
	ctx   context.Context
	out   io.Writer
	name  string
	show  bool
	width int // columns of the terminal; 0: it doesn't say
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
		name, right := b.name, []decor.Decorator{
			decor.CountersKibiByte("% .1f / % .1f"), decor.Name("  "),
			decor.AverageSpeed(decor.SizeB1024(0), "% .1f"), decor.Name("  "),
		}
		if b.width > 0 {
			name = cut(name, b.width/3)
			if b.width < roomy {
				right = []decor.Decorator{decor.Percentage(), decor.Name("  ")}
			}
		}
		b.one = b.all.AddBar(total,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(name+" ")),
			mpb.AppendDecorators(append(right, decor.AverageETA(decor.ET_STYLE_GO))...),
		)
		b.one.DecoratorAverageAdjust(b.start)
	}
	b.one.SetCurrent(done)
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
