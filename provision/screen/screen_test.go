package screen

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/internal/leak"
	"farhand/provision/request"

	"github.com/creack/pty"
)

// board is a root directory with the devices of a board as plain files.
type board struct {
	t    *testing.T
	root string
}

func newBoard(t *testing.T) board {
	b := board{t, t.TempDir()}
	for name, text := range map[string]string{
		"sys/class/tty/tty0/active":    "tty1\n",
		"sys/class/tty/console/active": "tty0 ttyS0\n",
		"proc/sys/kernel/printk":       "7\t4\t1\t7\n",
		"dev/tty1":                     "",
		"dev/ttyS0":                    "",
		"dev/fb0":                      "",
	} {
		b.put(name, text)
	}
	return b
}

func (b board) put(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// take is what was written since the last take.
func (b board) take(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		b.t.Fatal(err)
	}
	b.put(name, "")
	return string(data)
}

// log collects what a logger writes.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (b board) screen(f format) (*Screen, *log) {
	l := &log{}
	s := newScreen(Config{Root: b.root, Logger: slog.New(slog.NewTextHandler(l, nil))},
		func(*os.File) (format, error) { return f, nil })
	return s, l
}

func TestScreenDrawsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		f := formats(640, 480)["16"]
		s, l := b.screen(f)
		defer s.Close()
		synctest.Wait()
		if text := b.take("dev/ttyS0"); !strings.Contains(text, "Starting.") {
			t.Errorf("at first the serial console shows %q", text)
		}
		if level := b.take("proc/sys/kernel/printk"); level != quietLevel+"\n" {
			t.Errorf("the console's log level is %q", level)
		}
		p := pairing()
		p.ExpiresAt = time.Now().Add(time.Hour)
		s.Show(View{Pairing: &p})
		faketime.Advance(serialUrgent)
		if got := decode(t, f.see(memory(b.take("dev/fb0")))); got != p.VerificationURIComplete {
			t.Errorf("the display's code holds %q", got)
		}
		if got := decode(t, screenshot(t, b.take("dev/tty1"), columns)); got != p.VerificationURIComplete {
			t.Errorf("the console's code holds %q", got)
		}
		if got := decode(t, screenshot(t, b.take("dev/ttyS0"), columns)); got != p.VerificationURIComplete {
			t.Errorf("the serial console's code holds %q", got)
		}
		faketime.Advance(5 * time.Minute)
		if n := strings.Count(l.String(), p.UserCode); n != 1 {
			t.Errorf("the log has the code %d times", n)
		}
	})
}

// A code is repeated for whoever attaches a terminal later; what changes often
// doesn't flood a line that may be somebody's log.
func TestSerialConsoleIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		s, _ := b.screen(formats(320, 200)["32"])
		defer s.Close()
		synctest.Wait()
		p := pairing()
		p.ExpiresAt = time.Now().Add(time.Hour)
		s.Show(View{Pairing: &p})
		faketime.Advance(serialUrgent)
		b.take("dev/ttyS0")
		faketime.Advance(serialEvery - time.Second)
		if text := b.take("dev/ttyS0"); text != "" {
			t.Errorf("too early: %.60q", text)
		}
		faketime.Advance(time.Second)
		if text := b.take("dev/ttyS0"); !strings.Contains(text, p.UserCode) {
			t.Error("the code isn't repeated")
		}

		shown := 0
		v := connected()
		for i := range 300 { // a second each
			v.Status.Detail = strings.Repeat("x", 1+i%9)
			s.Show(v)
			faketime.Advance(time.Second)
			if b.take("dev/ttyS0") != "" {
				shown++
			}
		}
		if shown < 3 || shown > 7 {
			t.Errorf("the serial console was drawn %d times in five minutes", shown)
		}
		// Without a code, what doesn't change isn't repeated.
		faketime.Advance(serialChange)
		b.take("dev/ttyS0")
		faketime.Advance(time.Hour)
		if text := b.take("dev/ttyS0"); text != "" {
			t.Errorf("repeated: %.60q", text)
		}
	})
}

// A display may be plugged in at any time, or spoilt by a kernel message: it is
// drawn again and again. The text below it isn't, since it would flicker.
func TestDisplayIsDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		if err := os.Remove(filepath.Join(b.root, "dev/fb0")); err != nil {
			t.Fatal(err)
		}
		f := formats(320, 200)["32"]
		s, _ := b.screen(f)
		defer s.Close()
		s.Show(connected())
		synctest.Wait()
		if text := b.take("dev/tty1"); !strings.Contains(text, "Bench by the window") {
			t.Errorf("without a framebuffer tty1 shows %q", text)
		}
		b.put("dev/fb0", "")
		faketime.Advance(displayEvery)
		if n := len(b.take("dev/fb0")); n != f.length {
			t.Errorf("%d bytes were drawn of %d", n, f.length)
		}
		faketime.Advance(displayEvery)
		if n := len(b.take("dev/fb0")); n != f.length {
			t.Errorf("the second time %d bytes were drawn of %d", n, f.length)
		}
		b.take("dev/tty1")
		faketime.Advance(5 * displayEvery)
		if text := b.take("dev/tty1"); text != "" {
			t.Errorf("the text is drawn over the picture: %q", text)
		}
	})
}

// The kernel may show the text only after the picture was drawn over it.
func TestPictureSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		s, _ := b.screen(formats(320, 200)["32"])
		defer s.Close()
		s.Show(connected())
		synctest.Wait()
		b.take("dev/fb0")
		faketime.Advance(settle)
		if b.take("dev/fb0") == "" {
			t.Error("the picture isn't drawn again")
		}
		faketime.Advance(displayEvery - 2*settle)
		if b.take("dev/fb0") != "" {
			t.Error("the picture is drawn again and again")
		}
	})
}

func TestOtherConsoleIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		b.put("sys/class/tty/tty0/active", "tty2\n")
		s, _ := b.screen(formats(320, 200)["32"])
		defer s.Close()
		s.Show(connected())
		faketime.Advance(displayEvery)
		if got := b.take("dev/fb0"); got != "" {
			t.Error("drawn over somebody's console")
		}
		b.put("sys/class/tty/tty0/active", "tty1\n")
		faketime.Advance(displayEvery)
		if got := b.take("dev/fb0"); got == "" {
			t.Error("not drawn when the console is back in front")
		}
	})
}

// Nothing at all is attached, or what is makes no sense: that is no failure.
func TestNothingAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Root: t.TempDir()})
		p := pairing()
		s.Show(View{Pairing: &p})
		faketime.Advance(time.Hour)
		s.Close()
		b := newBoard(t)
		b.put("sys/class/tty/console/active", "../../etc/passwd ttyAMA10 tty0\n")
		s, _ = b.screen(format{bits: 8})
		s.Show(connected())
		faketime.Advance(time.Hour)
		s.Close()
		if level := b.take("proc/sys/kernel/printk"); level != "7\n" {
			t.Errorf("after Close the console's log level is %q", level)
		}
	})
}

func TestSerialConsolesByName(t *testing.T) {
	b := newBoard(t)
	b.put("sys/class/tty/console/active", "tty0 ttyAMA0 hvc0 tty1 ../x ttyS1\n")
	s := &Screen{root: b.root}
	var names []string
	for _, p := range s.serials() {
		names = append(names, filepath.Base(p))
	}
	if got := strings.Join(names, " "); got != "ttyAMA0 hvc0 ttyS1" {
		t.Errorf("serial consoles are %s", got)
	}
}

// A real terminal: what is written arrives, and one that nobody reads doesn't
// hold anything up.
func TestTerminal(t *testing.T) {
	leak.Check(t)
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	b := newBoard(t)
	link := filepath.Join(b.root, "dev/ttyS0")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(slave.Name(), link); err != nil {
		t.Fatal(err)
	}
	s, _ := b.screen(formats(320, 200)["32"])
	if err := master.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for !strings.Contains(got.String(), "Starting.") {
		if _, err := io.CopyN(&got, master, 1); err != nil {
			t.Fatalf("after %q: %v", got.String(), err)
		}
	}
	// From here on nobody reads. A pty holds a few KiB, so that this blocks.
	v := connected()
	for range 60 {
		v.Status.Devices = append(v.Status.Devices, request.Device{ID: "usb", Desc: strings.Repeat("x", 250)})
	}
	s.Show(v)
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 2*writeLimit {
		t.Errorf("closing took %v", took)
	}
}

func BenchmarkFullHD(b *testing.B) {
	f := formats(1920, 1080)["32"]
	m := make(memory, f.length)
	page := pairingPage()
	for b.Loop() {
		c, err := page.draw(f.width, f.height, dark())
		if err == nil {
			err = f.write(m, c)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
