package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"farhand/e2e/boot/card"
	"farhand/e2e/boot/emulator"
	"farhand/e2e/boot/guest"
	"farhand/image/layout"
)

// run is one boot test.
type run struct {
	options
	out      *printer
	dir      string            // short: sockets lie below it
	raw      string            // the image, unpacked
	pristine map[string][]byte // files of its first partition
	emulator emulator.Program
	bench    *bench
	report   *report
}

// bootTest runs everything and says whether all was well.
func bootTest(ctx context.Context, o options, out io.Writer) (_ bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("the boot test took more than %s", o.limit))
	defer cancel()
	// A report of an earlier run must not be taken for this one's.
	if err := os.Remove(o.report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	r := &run{options: o, out: &printer{w: out, start: time.Now()}, report: &report{Seed: o.seed, Quick: o.quick}}
	lanes, err := chosen(r)
	if err != nil {
		return false, err
	}
	if r.dir, err = os.MkdirTemp("", "boot-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.clean()) }()
	if err := r.prepare(ctx, lanes); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.bench.stop()) }()
	r.side(ctx, lanes)
	r.report.Seconds = time.Since(r.out.start).Seconds()
	r.report.finish(o)
	r.report.print(out)
	if err := os.MkdirAll(filepath.Dir(o.report), 0o755); err != nil {
		return false, err
	}
	return r.report.OK, r.report.write(o.report)
}

func (r *run) clean() error {
	if r.keep {
		r.out.say("", "what is left lies in %s", r.dir)
		return nil
	}
	return os.RemoveAll(r.dir)
}

// prepare has the emulator, the image and the relay.
func (r *run) prepare(ctx context.Context, lanes []*lane) (err error) {
	if err := needed(ctx, r.out.writer("")); err != nil {
		return err
	}
	if r.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("where QEMU is kept: %w", err)
		}
		r.cache = filepath.Join(dir, "farhand-boot")
	}
	oldest := emulator.Oldest
	if r.quick {
		oldest = emulator.AnyVersion
	}
	if r.emulator, err = emulator.Locate(ctx, r.machine(), oldest, r.cache, r.out.writer("")); err != nil {
		return err
	}
	for _, l := range lanes {
		if f, ok := l.kind.UEFI(); ok {
			if l.firmware, err = f.Locate(ctx, r.cache, r.out.writer("")); err != nil {
				return err
			}
		}
	}
	if err := r.unpack(ctx); err != nil {
		return err
	}
	if err := r.remember(ctx); err != nil {
		return err
	}
	r.out.say("", "QEMU %s, %s, seed %d", r.emulator.Version, filepath.Base(r.image), r.seed)
	r.bench, err = startBench(ctx, r.bin, filepath.Join(r.dir, "host"))
	return err
}

// remember keeps the files of the image's first partition.
func (r *run) remember(ctx context.Context) error {
	info, err := os.Stat(r.raw)
	if err != nil {
		return err
	}
	c, err := card.Open(r.raw, info.Size())
	if err != nil {
		return err
	}
	files, err := c.Files(ctx, layout.Autoboot, filepath.Join(r.dir, "files"))
	if err != nil {
		return err
	}
	r.pristine = make(map[string][]byte)
	for _, name := range r.unchanging() {
		if r.pristine[name], err = fs.ReadFile(files, name); err != nil {
			return fmt.Errorf("the image's first partition: %w", err)
		}
	}
	return os.RemoveAll(filepath.Join(r.dir, "files"))
}

// lane is a board and what is done with it.
type lane struct {
	*run
	name   string
	full   bool // not part of a quick run
	alone  bool // begins when all others have ended, for the sake of its figures
	kind   guest.Kind
	target string // the image that it is for; empty: the Raspberry Pis'
	// firmware is what its kind of board starts with, if that isn't emulated by us.
	firmware emulator.Firmware
	steps    func(*device) []step
	longest  time.Duration // as in a step
	chance   *rand.Rand
}

// step is one thing that is done. longest is how long it may take on two cores
// that have nothing else to do.
type step struct {
	name    string
	longest time.Duration
	do      func(context.Context) error
}

func chosen(r *run) ([]*lane, error) {
	only, err := regexp.Compile(r.only)
	if err != nil {
		return nil, err
	}
	var lanes []*lane
	for i, l := range allLanes() {
		if l.target == "" {
			l.target = pi
		}
		if l.target != r.target || r.quick && l.full || !only.MatchString(l.name) {
			continue
		}
		l.run, l.chance = r, rand.New(rand.NewPCG(r.seed, uint64(i)))
		lanes = append(lanes, l)
	}
	if len(lanes) == 0 {
		return nil, fmt.Errorf("no lane for the image %s matches %q", r.target, r.only)
	}
	return lanes, nil
}

// side runs lanes side by side, in their order, and then those that want to be
// alone.
func (r *run) side(ctx context.Context, lanes []*lane) {
	next := make(chan *lane)
	var running sync.WaitGroup
	for range max(1, r.lanes) {
		running.Go(func() {
			for l := range next {
				l.work(ctx)
			}
		})
	}
	for _, l := range lanes {
		if !l.alone {
			next <- l
		}
	}
	close(next)
	running.Wait()
	for _, l := range lanes {
		if l.alone {
			l.work(ctx)
		}
	}
}

// work does the lane's steps until one fails.
func (l *lane) work(ctx context.Context) {
	limit := l.patient(l.longest)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the lane %s took more than %s", l.name, limit))
	defer cancel()
	d, err := newDevice(ctx, l)
	if err != nil {
		l.report.add(result{Lane: l.name, Step: "a new card", Failed: err.Error()})
		return
	}
	defer d.close()
	for _, s := range l.steps(d) {
		start := time.Now()
		err := l.step(ctx, s)
		r := result{Lane: l.name, Step: s.name, Seconds: time.Since(start).Seconds()}
		if err != nil {
			r.Failed = err.Error()
			l.out.say(l.name, "%s: FAILED after %.1f s: %v", s.name, r.Seconds, err)
		} else {
			l.out.say(l.name, "%s: ok, %.1f s", s.name, r.Seconds)
		}
		l.report.add(r)
		if err != nil {
			if d.stays(ctx); d.m != nil {
				d.failed()
			}
			return
		}
	}
	d.stays(ctx)
}

func (l *lane) step(ctx context.Context, s step) error {
	limit := l.patient(s.longest)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%q took more than %s", s.name, limit))
	defer cancel()
	return s.do(ctx)
}

// printer writes lines with the time since the start, from several lanes.
type printer struct {
	w     io.Writer
	start time.Time
	mu    sync.Mutex
}

func (p *printer) say(lane, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lane != "" {
		lane += ": "
	}
	fmt.Fprintf(p.w, "boot-test %5.0f s  %s%s\n", time.Since(p.start).Seconds(), lane, fmt.Sprintf(format, args...))
}

// writer says what is written to it, for a lane.
func (p *printer) writer(lane string) io.Writer { return &lines{p: p, lane: lane} }

type lines struct {
	p    *printer
	lane string
	part []byte
}

func (l *lines) Write(b []byte) (int, error) {
	for _, c := range b {
		switch c {
		case '\r':
		case '\n':
			l.p.say(l.lane, "%s", l.part)
			l.part = l.part[:0]
		default:
			l.part = append(l.part, c)
		}
	}
	return len(b), nil
}
