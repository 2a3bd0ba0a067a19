package screen

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"
)

// How often things are drawn again. The display is drawn on every change and
// regularly, since kernel messages or a display that was just plugged in may
// have spoilt it. A serial line is slow and may be somebody's log: there a code
// is repeated for whoever attaches a terminal later, and the rest comes on
// change alone.
const (
	displayEvery = 15 * time.Second
	settle       = time.Second     // after text on tty1, which the kernel may show late
	serialEvery  = time.Minute     // a page with a code, again
	serialUrgent = 2 * time.Second // at least between two pages of which one has another code
	serialChange = time.Minute     // at least between two others
)

// writeLimit bounds one drawing on a terminal that takes nothing.
const writeLimit = 5 * time.Second

// quietLevel is the console log level while the screen is ours: only what is
// critical and worse (levels below 3 of syslog(2)) is printed over it.
const quietLevel = "3"

// Config is where a Screen draws.
type Config struct {
	// Root is the directory below which dev, sys and proc are; empty: /.
	Root   string
	Logger *slog.Logger
}

// Screen draws a view on everything that is attached. Its methods may be called
// from several goroutines.
type Screen struct {
	root   string
	log    *slog.Logger
	format func(*os.File) (format, error)

	mu   sync.Mutex
	view View

	changed chan struct{} // capacity 1: there is another view
	cancel  context.CancelFunc
	done    chan struct{}
}

// New starts to draw: at first that the system starts.
func New(cfg Config) *Screen { return newScreen(cfg, framebuffer) }

func newScreen(cfg Config, format func(*os.File) (format, error)) *Screen {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Screen{
		root:    cfg.Root,
		log:     cfg.Logger,
		format:  format,
		changed: make(chan struct{}, 1),
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	if s.root == "" {
		s.root = "/"
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	go s.run(ctx)
	return s
}

// Show draws v from now on. It doesn't wait for the drawing; of several views in
// quick succession only the last is sure to be seen.
func (s *Screen) Show(v View) {
	s.mu.Lock()
	s.view = v
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Close ends the drawing. What is drawn stays, so that a display doesn't go
// dark when its program is restarted; kernel messages appear again.
func (s *Screen) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// drawn is what run remembers of the last drawings.
type drawn struct {
	code   string // the user code that was logged
	text   Page   // on tty1
	serial Page
	at     time.Time // when serial was drawn
	settle time.Time // when to draw the picture again
}

func (s *Screen) run(ctx context.Context) {
	defer close(s.done)
	defer s.hush()()
	tick := time.NewTicker(displayEvery)
	defer tick.Stop()
	var last drawn
	for {
		s.mu.Lock()
		v := s.view
		s.mu.Unlock()
		again := s.draw(ctx, v, &last)
		if soon := time.Until(last.settle); soon > 0 {
			again = min(again, soon)
		}
		wake := time.NewTimer(again)
		select {
		case <-ctx.Done():
			wake.Stop()
			return
		case <-s.changed:
		case <-tick.C:
		case <-wake.C:
		}
		wake.Stop()
	}
}

// draw draws v where it is due, and says when something is due again.
func (s *Screen) draw(ctx context.Context, v View, last *drawn) time.Duration {
	now := time.Now()
	page := Compose(v, now)
	// What changes by the minute is no reason to draw on a terminal.
	timeless := Compose(v, time.Time{})

	if v.Pairing != nil && v.Pairing.UserCode != last.code {
		last.code = v.Pairing.UserCode
		s.log.Info("pair this machine: open the address and compare the code",
			"address", Clean(v.Pairing.VerificationURI), "code", Clean(v.Pairing.UserCode))
	}
	s.display(ctx, page, timeless, last)

	changed := !reflect.DeepEqual(timeless, last.serial)
	due := serialChange
	switch {
	case last.at.IsZero():
		due = 0
	case changed && timeless.QR != last.serial.QR:
		due = serialUrgent
	case !changed && timeless.QR == "":
		return displayEvery
	case !changed:
		due = serialEvery
	}
	if wait := due - now.Sub(last.at); wait > 0 {
		return wait
	}
	for _, path := range s.serials() {
		s.terminal(ctx, path, page.Serial())
	}
	last.serial, last.at = timeless, now
	return displayEvery
}

// display draws on tty1, and over it into the framebuffer.
func (s *Screen) display(ctx context.Context, page, timeless Page, last *drawn) {
	active, haveConsoles := s.active()
	fb, f, err := s.picture()
	if fb != nil {
		defer fb.Close()
	}
	// Writing text shows it until the picture is drawn over it, so it is written
	// only if it differs; without a picture it is what is read, so it is kept
	// up to date.
	text := timeless
	if err != nil {
		text = page
	}
	wrote := haveConsoles && !reflect.DeepEqual(text, last.text)
	if wrote {
		s.console(ctx, text)
		last.text = text
	}
	// Another console than ours in front is somebody's work.
	if err != nil || haveConsoles && active != "tty1" {
		return
	}
	if wrote {
		last.settle = time.Now().Add(settle)
	}
	c, err := page.draw(f.width, f.height, dark())
	if err == nil {
		err = f.write(fb, c)
	}
	if err != nil {
		s.log.Debug("no picture on the display", "err", err)
	}
}

// picture opens the framebuffer, if there is one to draw into.
func (s *Screen) picture() (*os.File, format, error) {
	fb, err := openDevice(filepath.Join(s.root, "dev/fb0"))
	if err != nil {
		return nil, format{}, err
	}
	f, err := s.format(fb)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		s.log.Debug("no picture on the display", "err", err)
	}
	return fb, f, err
}

// console writes a page on tty1.
func (s *Screen) console(ctx context.Context, page Page) {
	f, err := openDevice(filepath.Join(s.root, "dev/tty1"))
	if err != nil {
		s.log.Debug("no text on the display", "err", err)
		return
	}
	defer f.Close()
	cols, rows, ok := windowSize(f)
	if !ok {
		cols, rows = columns, 25
	}
	s.write(ctx, f, page.Console(cols, rows))
}

// active is the virtual console in front; there may be none at all.
func (s *Screen) active() (string, bool) {
	text, err := os.ReadFile(filepath.Join(s.root, "sys/class/tty/tty0/active"))
	return strings.TrimSpace(string(text)), err == nil
}

// serials are the paths of the consoles that are no virtual ones.
func (s *Screen) serials() []string {
	text, err := os.ReadFile(filepath.Join(s.root, "sys/class/tty/console/active"))
	if err != nil {
		return nil
	}
	var paths []string
	for name := range strings.FieldsSeq(string(text)) {
		if number := strings.TrimPrefix(name, "tty"); number != name && strings.Trim(number, "0123456789") == "" {
			continue // tty1 and so on
		}
		if filepath.Base(name) == name {
			paths = append(paths, filepath.Join(s.root, "dev", name))
		}
	}
	return paths
}

// terminal draws on a terminal that may not be there.
func (s *Screen) terminal(ctx context.Context, path string, data []byte) {
	f, err := openDevice(path)
	if err != nil {
		s.log.Debug("no text on a console", "err", err)
		return
	}
	defer f.Close()
	s.write(ctx, f, data)
}

// write writes within writeLimit, or until ctx ends.
func (s *Screen) write(ctx context.Context, f *os.File, data []byte) {
	// Not every file can be waited for; one that can't doesn't block either.
	_ = f.SetWriteDeadline(time.Now().Add(writeLimit))
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Now()) })
	defer stop()
	if _, err := f.Write(data); err != nil {
		s.log.Debug("a console takes no text", "path", f.Name(), "err", err)
	}
}

// hush keeps kernel messages off the console, and returns what undoes it.
func (s *Screen) hush() (undo func()) {
	path := filepath.Join(s.root, "proc/sys/kernel/printk")
	before, err := os.ReadFile(path)
	if err != nil {
		return func() {}
	}
	level, _, _ := strings.Cut(strings.TrimSpace(string(before)), "\t")
	if err := os.WriteFile(path, []byte(quietLevel+"\n"), 0); err != nil {
		s.log.Debug("kernel messages may appear over the screen", "err", err)
		return func() {}
	}
	return func() { _ = os.WriteFile(path, []byte(level+"\n"), 0) }
}
