package present

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/leak"
	"farhand/provision/request"
	"farhand/wire"
)

// helper writes down what it is told, in order.
type helper struct {
	mu    sync.Mutex
	told  []string
	err   error         // of every call
	stuck chan struct{} // not nil: calls wait for it or the end
}

func (h *helper) note(ctx context.Context, text string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stuck != nil {
		stuck := h.stuck
		h.mu.Unlock()
		select {
		case <-stuck:
		case <-ctx.Done():
		}
		h.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if h.err != nil {
		return h.err
	}
	h.told = append(h.told, text)
	return nil
}

func (h *helper) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// take is what was told since the last time.
func (h *helper) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := strings.Join(h.told, " | ")
	h.told = nil
	return all
}

func (h *helper) ShowPairing(ctx context.Context, p request.Pairing) error {
	return h.note(ctx, "code "+p.UserCode)
}
func (h *helper) ShowStatus(ctx context.Context, s request.Status) error {
	return h.note(ctx, "status "+s.State+" "+strings.Join(s.Addresses, ","))
}
func (h *helper) Paired(ctx context.Context) error { return h.note(ctx, "paired") }
func (h *helper) Facts(ctx context.Context) (request.Facts, error) {
	return request.Facts{Slot: "b"}, h.note(ctx, "facts?")
}
func (h *helper) Offline(ctx context.Context, o request.Offline) error {
	if o.KnownNetwork && o.Wireless {
		return h.note(ctx, "offline in a Wi-Fi")
	} else if o.KnownNetwork {
		return h.note(ctx, "offline in a network")
	}
	return h.note(ctx, "offline")
}
func (h *helper) Online(ctx context.Context) error { return h.note(ctx, "online") }
func (h *helper) SetClockHint(ctx context.Context, c request.ClockHint) error {
	return h.note(ctx, "clock")
}
func (h *helper) Settings(context.Context) (s wire.Settings, err error) {
	return s, request.Unavailable
}
func (h *helper) ChangeSettings(context.Context, wire.SettingsChange) (s wire.Settings, err error) {
	return s, request.Unavailable
}
func (h *helper) KeepNetworks(ctx context.Context, _ request.Reached) error {
	return h.note(ctx, "networks kept")
}

// reporter is what the daemon would say.
type reporter struct {
	mu sync.Mutex
	r  Report
}

func (r *reporter) set(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.r)
}

func (r *reporter) report(context.Context, request.Facts) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r
}

func start(t *testing.T, h Helper, r *reporter, inNetwork bool) *Presenter {
	p := New(t.Context(), Options{Helper: h, Report: r.report, InNetwork: func() bool { return inNetwork }, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// after lets so much of the fake time pass.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestTellsEachThingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := &helper{}, &reporter{}
		r.set(func(x *Report) { x.Status.State, x.Unknown = "starting", true })
		p := start(t, h, r, true)
		want := func(what string) {
			t.Helper()
			if got := h.take(); got != what {
				t.Errorf("told %q, want %q", got, what)
			}
		}
		synctest.Wait()
		want("facts? | status starting ")
		if f, ok := p.Facts(); !ok || f.Slot != "b" {
			t.Errorf("%+v, %v", f, ok)
		}

		p.ShowPairing(request.Pairing{UserCode: "BCDF-0001"})
		r.set(func(x *Report) { x.Unknown = false })
		after(2 * time.Second)
		want("online | code BCDF-0001")
		for range 50 { // a burst of changes behind the code
			p.Changed()
		}
		after(time.Minute)
		want("")
		p.ShowPairing(request.Pairing{UserCode: "BCDF-0002"}) // the first has expired
		after(2 * time.Second)
		want("code BCDF-0002")

		r.set(func(x *Report) { x.Status.State = "connected" })
		p.Paired()
		after(2 * time.Second)
		want("paired | status connected ")
		after(2 * time.Minute)
		want("")

		r.set(func(x *Report) { x.Status.Addresses = []string{"192.0.2.7"} }) // nobody says so
		after(look + time.Second)
		want("status connected 192.0.2.7")

		r.set(func(x *Report) { x.Status.State, x.Offline = "offline", time.Now() })
		p.Changed()
		after(time.Second)
		want("offline in a network | status offline 192.0.2.7")
		after(2 * look)
		want("offline in a network | offline in a network")
		after(remind) // though nothing has changed
		if got := h.take(); strings.Count(got, "status offline") != 1 {
			t.Errorf("told %q in %s of trouble", got, remind)
		}
		r.set(func(x *Report) { x.Status.State, x.Offline = "connected", time.Time{} })
		p.Changed()
		after(time.Second)
		want("online | status connected 192.0.2.7")
		after(factsLife)
		want("facts?")
	})
}

// A helper that fails, goes and comes back is told everything anew, and its
// absence costs a look every half minute.
func TestHelperComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := &helper{err: request.ErrNoHelper}, &reporter{}
		r.set(func(x *Report) { x.Status.State = "connected" })
		p := start(t, h, r, false)
		p.Paired()
		after(10 * time.Minute)
		if got := h.take(); got != "" {
			t.Errorf("told %q", got)
		}
		h.set(errors.New("broken pipe"))
		after(10 * time.Minute)
		h.set(nil)
		after(look + 5*time.Second)
		if got := h.take(); got != "facts? | paired | online | status connected " {
			t.Errorf("told %q", got)
		}
		h.set(errors.New("restarting"))
		r.set(func(x *Report) { x.Status.State = "halted" })
		p.Changed()
		after(5 * time.Second)
		h.set(nil)
		after(look + 5*time.Second)
		if got := h.take(); got != "online | status halted " {
			t.Errorf("told %q", got)
		}
	})
}

// Whoever tells the Presenter something never waits for the helper, and Close
// ends a call that does.
func TestNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := &helper{stuck: make(chan struct{})}, &reporter{}
		p := New(t.Context(), Options{Helper: h, Report: r.report, InNetwork: func() bool { return true }, Log: slog.New(slog.DiscardHandler)})
		began := time.Now()
		for range 1000 {
			p.ShowPairing(request.Pairing{UserCode: "BCDF-0001"})
			p.EndPairing()
			p.Paired()
			p.Changed()
			p.Facts()
		}
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

// The helper behind a real socket.
func TestOverTheSocket(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "provision.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := &helper{}
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { request.Serve(ctx, conn, h, time.Minute) })
		}
	})
	defer serving.Wait()
	defer l.Close()
	defer cancel()

	r := &reporter{}
	r.set(func(x *Report) { x.Status.State = "connecting" })
	told := make(chan struct{})
	p := New(t.Context(), Options{Helper: request.Client{Path: path}, InNetwork: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
		Report: func(ctx context.Context, f request.Facts) Report { defer close(told); return r.report(ctx, f) }})
	<-told
	if f, ok := p.Facts(); !ok || f.Slot != "b" {
		t.Errorf("%+v, %v", f, ok)
	}
	if err := p.SetClockHint(t.Context(), time.Unix(1_800_000_000, 0)); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := h.take(); !strings.HasPrefix(got, "facts?") || !strings.Contains(got, "clock") {
		t.Errorf("told %q", got)
	}
}

func TestRoutes(t *testing.T) {
	const (
		head4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
		gate4 = "eth0\t00000000\t0202000A\t0003\t0\t0\t1024\t00000000\t0\t0\t0\n"
		wifi4 = "wlan0\t00000000\t0202000A\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
		near4 = "wlan0\t00002A0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" // the rescue network's own
		zero  = "00000000000000000000000000000000"
		lo6   = zero + " 00 " + zero + " 00 " + zero + " ffffffff 00000001 00000000 00200200       lo\n"
		gate6 = zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003     eth0\n"
	)
	for _, c := range []struct {
		name, four, six string
		want, wireless  bool
	}{
		{"IPv4", head4 + near4 + gate4, "", true, false},
		{"IPv6", head4, lo6 + gate6, true, false},
		{"only its own", head4 + near4, lo6, false, false},
		{"none", "", "", false, false},
		{"cut off", "eth0\t00000000\n", zero + " 00\n", false, false},
		{"Wi-Fi", head4 + wifi4, lo6, true, true},
		{"Wi-Fi, IPv6", head4, lo6 + strings.Replace(gate6, "eth0", "wlan0", 1), true, true},
		{"both", head4 + wifi4 + gate4, lo6, true, false},
		{"each by another", head4 + wifi4, lo6 + gate6, true, false},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "proc/self/net")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"route": c.four, "ipv6_route": c.six} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(root, "sys/class/net/wlan0/phy80211"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got, only := hasRoute(root), wireless(root); got != c.want || only != c.wireless {
			t.Errorf("%s: %v, by Wi-Fi alone %v", c.name, got, only)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, a := range Addresses() {
		ip := net.ParseIP(a)
		if ip == nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			t.Errorf("%q isn't of use to anybody", a)
		}
	}
}

func FuzzRoutes(f *testing.F) {
	f.Add("eth0\t00000000\t0202000A\t0003\t0\t0\t1024\t00000000\t0\t0\t0")
	f.Add("00000000000000000000000000000000 00 0 00 fe80 0 0 0 0 eth0")
	f.Fuzz(func(t *testing.T, line string) {
		lines := strings.Split(line, "\n")
		if len(routes4(lines)) > 0 && !strings.Contains(line, "00000000") {
			t.Errorf("a route by %q", line)
		}
		if len(routes6(lines)) > 0 && !strings.Contains(line, "00000000000000000000000000000000") {
			t.Errorf("a route by %q", line)
		}
	})
}
