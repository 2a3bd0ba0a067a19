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
		show: a.style.errT && !a.askedJSON()}
}

// quiet is how long a transfer may take without a bar.
const quiet = time.Second

type bar struct {
	ctx   context.Context
	out   io.Writer
	name  string
	show  bool
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
		b.one = b.all.AddBar(total,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(b.name+" ")),
			mpb.AppendDecorators(
				decor.CountersKibiByte("% .1f / % .1f"), decor.Name("  "),
				decor.AverageSpeed(decor.SizeB1024(0), "% .1f"), decor.Name("  "),
				decor.AverageETA(decor.ET_STYLE_GO),
			),
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
