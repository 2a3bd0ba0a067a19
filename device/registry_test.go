package device

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"farhand/internal/faketime"
	"farhand/wire"
)

func ids(r *Registry) []string {
	var all []string
	for _, d := range r.List() {
		all = append(all, d.ID)
	}
	return all
}

func TestGeneration(t *testing.T) {
	s := newShelf("serial")
	r := NewRegistry(Options{Families: []Family{{Driver: s, Service: &desk{}}}})
	generation := func(want int) {
		t.Helper()
		refresh(t, r)
		if d, err := r.Resolve("serial:a"); err != nil || d.Generation != want {
			t.Errorf("generation %d, %v, want %d", d.Generation, err, want)
		}
	}
	s.put("a")
	generation(1)
	generation(1)
	s.take("a")
	refresh(t, r)
	if _, err := r.Resolve("serial:a"); !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("a device that is gone resolves: %v", err)
	}
	s.put("a")
	generation(2)
	s.put("a") // unplugged and plugged in between two looks
	generation(3)
}

func TestResolve(t *testing.T) {
	s, u := newShelf("serial"), newShelf("usb")
	s.put("a", "/dev/ttyUSB0", "both", "serial:b")
	s.put("b", "/dev/ttyUSB1", "both")
	u.put("c", "/dev/ttyUSB9")
	r := NewRegistry(Options{Families: []Family{{Driver: s, Service: &desk{}}, {Driver: u}}})
	refresh(t, r)
	for name, want := range map[string]string{"serial:a": "serial:a", "/dev/ttyUSB1": "serial:b", "serial:b": "serial:b", "/dev/ttyUSB9": "usb:c"} {
		if d, err := r.Resolve(name); err != nil || d.ID != want {
			t.Errorf("%s is %s, %v", name, d.ID, err)
		}
	}
	_, err := r.Resolve("both")
	if e := wire.AsError(err); e.Code != wire.HardwareAmbiguous || !cmp.Equal(e.Details["candidates"], []string{"serial:a", "serial:b"}) {
		t.Errorf("both: %v %v", err, e.Details)
	}
	_, err = r.Resolve("no\x1b[31msuch" + strings.Repeat("x", 1000))
	if e := wire.AsError(err); e.Code != wire.HardwareNotFound || strings.Contains(e.Message, "\x1b") || len(e.Message) > 300 {
		t.Errorf("an unknown name: %v", err)
	}
	if d, _ := r.Resolve("usb:c"); d.Available || d.Reason != NoDriverYet {
		t.Errorf("without a service: available %v, reason %q", d.Available, d.Reason)
	}
}

func TestListIsACopy(t *testing.T) {
	s := newShelf("serial")
	s.put("a", "x", "y")
	r := NewRegistry(Options{Families: []Family{{Driver: s}}})
	refresh(t, r)
	r.List()[0].Aliases[0] = "spoilt"
	if d := r.List()[0]; d.Aliases[0] != "x" {
		t.Errorf("the aliases are %v", d.Aliases)
	}
}

func TestAllowAndDeny(t *testing.T) {
	for _, c := range []struct {
		allow, deny, want []string
	}{
		{nil, nil, []string{"serial:a", "serial:b", "usb:c"}},
		{[]string{}, nil, nil},
		{[]string{"serial:*"}, nil, []string{"serial:a", "serial:b"}},
		{[]string{"serial:a", "usb:?"}, nil, []string{"serial:a", "usb:c"}},
		{nil, []string{"*:[ab]"}, []string{"usb:c"}},
		{[]string{"serial:*"}, []string{"serial:b"}, []string{"serial:a"}},
	} {
		s, u := newShelf("serial"), newShelf("usb")
		s.put("a", "alias")
		s.put("b")
		u.put("c")
		r := NewRegistry(Options{Families: []Family{{Driver: s}, {Driver: u}}, Allow: c.allow, Deny: c.deny})
		refresh(t, r)
		if diff := cmp.Diff(c.want, ids(r)); diff != "" {
			t.Errorf("allow %q, deny %q:\n%s", c.allow, c.deny, diff)
		}
		_, err := r.Resolve("alias")
		if listed := len(c.want) > 0 && c.want[0] == "serial:a"; listed != (err == nil) {
			t.Errorf("allow %q, deny %q: the alias resolves: %v", c.allow, c.deny, err)
		}
	}
}

func TestFailingDriver(t *testing.T) {
	good, bad := newShelf("serial"), newShelf("usb")
	good.put("a")
	bad.put("b")
	r := NewRegistry(Options{Families: []Family{{Driver: bad, Service: &desk{}}, {Driver: good, Service: &desk{}}}})
	refresh(t, r)
	for name, change := range map[string]func(*shelf){
		"fails":  func(s *shelf) { s.err = errBroken },
		"panics": func(s *shelf) { s.panics = true },
	} {
		bad.set(change)
		refresh(t, r)
		if diff := cmp.Diff([]string{"serial:a", "usb:b"}, ids(r)); diff != "" {
			t.Errorf("a driver that %s:\n%s", name, diff)
		}
		if p := r.Problems(); len(p) != 1 || p[0].Type != "usb" {
			t.Errorf("a driver that %s: problems %v", name, p)
		}
		if d, _ := r.Resolve("usb:b"); d.Available || d.Reason == "" || d.Generation != 1 {
			t.Errorf("a driver that %s: %+v", name, d)
		}
		bad.set(func(s *shelf) { s.err, s.panics = nil, false })
		refresh(t, r)
		if d, _ := r.Resolve("usb:b"); !d.Available || d.Generation != 1 || len(r.Problems()) != 0 {
			t.Errorf("after it: %+v, %v", d, r.Problems())
		}
	}
}

func TestTwoDriversOneID(t *testing.T) {
	first, second := newShelf("serial"), newShelf("serial")
	first.put("a", "first")
	second.put("a", "second")
	r := NewRegistry(Options{Families: []Family{{Driver: first}, {Driver: second}}})
	refresh(t, r)
	if _, err := r.Resolve("first"); err != nil || len(r.List()) != 1 || len(r.Problems()) != 1 {
		t.Errorf("%v, %v, %v", r.List(), r.Problems(), err)
	}
	wrong := newShelf("serial")
	wrong.put("a")
	wrong.on["serial:a"] = Descriptor{HardwareDevice: wire.HardwareDevice{Type: "serial", ID: "usb:a"}}
	r = NewRegistry(Options{Families: []Family{{Driver: wrong}}})
	refresh(t, r)
	if len(r.List()) != 0 || len(r.Problems()) != 1 {
		t.Errorf("a device of another type: %v, %v", r.List(), r.Problems())
	}
}

func TestRefreshCancelled(t *testing.T) {
	s := newShelf("serial")
	s.put("a")
	r := NewRegistry(Options{Families: []Family{{Driver: s}}})
	refresh(t, r)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.set(func(s *shelf) { s.blocked = make(chan struct{}) })
	cancel(why)
	if err := r.Refresh(ctx); !errors.Is(err, why) {
		t.Errorf("a cancelled Refresh answers %v", err)
	}
	if len(r.List()) != 1 || len(r.Problems()) != 0 {
		t.Errorf("half a view was taken for the whole: %v, %v", r.List(), r.Problems())
	}
}

func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("serial")
		r := NewRegistry(Options{Families: []Family{{Driver: s, Service: &desk{}}}})
		for range flapCount {
			s.put("a")
			refresh(t, r)
			faketime.Advance(time.Second)
		}
		if d, _ := r.Resolve("serial:a"); !strings.HasPrefix(d.Reason, "flapping") || !d.Available {
			t.Errorf("available %v, reason %q", d.Available, d.Reason)
		}
		faketime.Advance(flapWindow)
		refresh(t, r)
		if d, _ := r.Resolve("serial:a"); d.Reason != "" || d.Generation != flapCount {
			t.Errorf("long after: reason %q, generation %d", d.Reason, d.Generation)
		}
	})
}

// TestMemoryIsBounded is a device with another serial number at every plug.
func TestMemoryIsBounded(t *testing.T) {
	s := newShelf("serial")
	r := NewRegistry(Options{Families: []Family{{Driver: s}}})
	s.put("stays")
	for i := range maxRemembered + 100 {
		name := fmt.Sprint("n", i)
		s.put(name)
		refresh(t, r)
		s.take(name)
	}
	refresh(t, r)
	if n := len(r.memory); n > maxRemembered+1 {
		t.Errorf("%d devices are remembered", n)
	}
	if d, err := r.Resolve("serial:stays"); err != nil || d.Generation != 1 {
		t.Errorf("what was there all the time: %+v, %v", d, err)
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	s := newShelf("serial")
	r := NewRegistry(Options{Families: []Family{{Driver: s, Service: &desk{}}}})
	ls := NewLeases(LeaseOptions{})
	defer ls.Close()
	d := NewDispatcher(r, ls, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	for range 2 {
		g.Go(func() {
			for i := range 200 {
				s.put("a", fmt.Sprint(i))
				if err := r.Refresh(ctx); err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					s.take("a")
				}
			}
		})
		g.Go(func() {
			for i := range 200 {
				c := Caller{Session: fmt.Sprint(i % 3)}
				_, _, err := d.Do(ctx, c, wire.HardwareOp{Device: "serial:a", Op: "NOP", Hold: i%2 == 0})
				switch wire.CodeOf(err) {
				case "", wire.HardwareNotFound, wire.HardwareBusy, wire.DeviceGone, wire.HardwareTransferFailed: // gone, taken, or its session ended
				default:
					t.Error(err)
				}
				if err := ls.ReleaseAll(ctx, c.Session); err != nil {
					t.Error(err)
				}
				r.List()
			}
		})
	}
	subscribed := make(chan struct{})
	go func() {
		defer close(subscribed)
		sub := r.Subscribe()
		defer sub.Close()
		for {
			if _, _, err := sub.Next(ctx); err != nil {
				return
			}
		}
	}()
	g.Wait()
	cancel()
	<-subscribed
}
