package request

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"farhand/internal/leak"
	"farhand/wire"
)

// recorder notes what it is asked for.
type recorder struct {
	mu    sync.Mutex
	calls []any
	err   error
	facts Facts

	settings wire.Settings
	block    chan struct{} // not nil: a call waits for it or for its context
	began    chan struct{} // not nil: gets one before that
}

func (r *recorder) got(ctx context.Context, what any) error {
	r.mu.Lock()
	r.calls = append(r.calls, what)
	r.mu.Unlock()
	if r.began != nil {
		r.began <- struct{}{}
	}
	if r.block != nil {
		select {
		case <-r.block:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return r.err
}

// all are the calls so far.
func (r *recorder) all() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *recorder) ShowPairing(ctx context.Context, p Pairing) error    { return r.got(ctx, p) }
func (r *recorder) ShowStatus(ctx context.Context, s Status) error      { return r.got(ctx, s) }
func (r *recorder) Paired(ctx context.Context) error                    { return r.got(ctx, paired) }
func (r *recorder) Offline(ctx context.Context, o Offline) error        { return r.got(ctx, o) }
func (r *recorder) Online(ctx context.Context) error                    { return r.got(ctx, online) }
func (r *recorder) SetClockHint(ctx context.Context, h ClockHint) error { return r.got(ctx, h) }
func (r *recorder) Facts(ctx context.Context) (Facts, error)            { return r.facts, r.got(ctx, facts) }
func (r *recorder) Settings(ctx context.Context) (wire.Settings, error) {
	return r.settings, r.got(ctx, settings)
}
func (r *recorder) ChangeSettings(ctx context.Context, c wire.SettingsChange) (wire.Settings, error) {
	return r.settings, r.got(ctx, c)
}
func (r *recorder) RemoveOllama(ctx context.Context, o RemoveOllama) error { return r.got(ctx, o) }

// InstallOllama notes what the archive holds, too.
func (r *recorder) InstallOllama(ctx context.Context, o InstallOllama, archive *os.File) error {
	b, err := io.ReadAll(archive)
	return errors.Join(err, r.got(ctx, []any{o, string(b)}))
}

func (r *recorder) KeepNetworks(ctx context.Context, k Reached) error { return r.got(ctx, k) }

// start serves h on a socket of its own.
func start(t *testing.T, h Handler, idle time.Duration) Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { _ = Serve(ctx, conn, h, idle) })
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		work.Wait()
	})
	return Client{Path: path}
}

func TestEveryRequest(t *testing.T) {
	when := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	throttled := uint32(5)
	r := &recorder{settings: wire.Settings{Hostname: "bench"}, facts: Facts{Slot: "a", Throttled: &throttled, Wifi: WifiFacts{State: WifiReady}, Report: []Item{{Item: "x", Outcome: OutcomeRefused, Why: "y"}}}}
	c := start(t, r, time.Minute)
	pairing := Pairing{VerificationURI: "https://r/pair", UserCode: "BCDF-GHJK", ExpiresAt: when}
	status := Status{State: "connected", Name: "n", Addresses: []string{"10.0.0.2"}, Devices: []Device{{ID: "gpio:x"}}, OfflineSince: &when}
	ctx := t.Context()
	for _, err := range []error{
		c.ShowPairing(ctx, pairing), c.ShowStatus(ctx, status), c.Paired(ctx), c.Offline(ctx, Offline{Since: when, KnownNetwork: true}), c.Online(ctx), c.SetClockHint(ctx, ClockHint{Unix: 7}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	f, err := c.Facts(ctx)
	if d := cmp.Diff(r.facts, f); err != nil || d != "" {
		t.Errorf("facts: %v %s", err, d)
	}
	name := "greenhouse"
	change := wire.SettingsChange{Hostname: &name, WifiAdd: []wire.NewWifi{{SSID: "shed", Password: "battery staple"}}}
	for _, ask := range []func() (wire.Settings, error){
		func() (wire.Settings, error) { return c.Settings(ctx) },
		func() (wire.Settings, error) { return c.ChangeSettings(ctx, change) },
	} {
		s, err := ask()
		if d := cmp.Diff(r.settings, s); err != nil || d != "" {
			t.Errorf("settings: %v %s", err, d)
		}
	}
	if err := c.KeepNetworks(ctx, Reached{Began: 7}); err != nil {
		t.Error(err)
	}
	if err := c.RemoveOllama(ctx, RemoveOllama{Models: true}); err != nil {
		t.Error(err)
	}
	want := []any{pairing, status, paired, Offline{Since: when, KnownNetwork: true}, online, ClockHint{Unix: 7}, facts, settings, change, Reached{Began: 7}, RemoveOllama{Models: true}}
	if d := cmp.Diff(want, r.all()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

func TestFailuresKeepTheirCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code Code
		text string
	}{
		{&Error{Code: Refused, Message: "the hint is old"}, Refused, "the hint is old"},
		{errors.Join(errors.New("x"), Unavailable), Unavailable, "x unavailable"},
		{errors.New("no space"), Failed, "no space"},
	} {
		client := start(t, &recorder{err: c.err}, time.Minute)
		err := client.SetClockHint(t.Context(), ClockHint{})
		if !errors.Is(err, c.code) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	c := Client{Path: filepath.Join(t.TempDir(), "none")}
	if err := c.Online(t.Context()); !errors.Is(err, ErrNoHelper) {
		t.Error(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close() // its file stays
	if err := c.Online(t.Context()); !errors.Is(err, ErrNoHelper) {
		t.Error(err)
	}
}

// A helper that hangs costs its caller no more than the timeout.
func TestTimeout(t *testing.T) {
	c := start(t, &recorder{block: make(chan struct{})}, time.Minute)
	c.Timeout = 20 * time.Millisecond
	if err := c.Online(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestBadLines(t *testing.T) {
	r := &recorder{}
	for line, code := range map[string]Code{
		``:                          Malformed,
		`{}`:                        Unknown,
		`null`:                      Unknown,
		`[]`:                        Malformed,
		`{"request":"run_command"}`: Unknown,
		`{"request":"paired","path":"/etc/passwd"}`:        Malformed,
		`{"request":"paired","args":{}}`:                   Malformed,
		`{"request":"facts","args":{"path":"x"}}`:          Malformed,
		`{"request":"offline"}`:                            Malformed,
		`{"request":"offline","args":{"since":"then"}}`:    Malformed,
		`{"request":"set_clock_hint","args":{"unix":1}}{}`: Malformed,
		`{"request":"show_pairing","args":{}}`:             Malformed,
		`{"request":"change_settings","args":{}}`:          Malformed,
		`{"request":"change_settings","args":{"sudo":1}}`:  Malformed,
		`{"request":"settings","args":{"path":"x"}}`:       Malformed,
		`{"request":"show_pairing","args":{"verification_uri":"u","user_code":"` + strings.Repeat("x", 513) + `"}}`: Malformed,
		`{"request":"show_status","args":{"state":"s","addresses":[` + strings.Repeat(`"a",`, 16) + `"a"]}}`:        Malformed,
	} {
		var a answer
		if err := json.Unmarshal(Answer(t.Context(), r, []byte(line)), &a); err != nil {
			t.Fatal(err)
		}
		if a.OK || a.Code != code || a.Message == "" {
			t.Errorf("%.80s: %+v", line, a)
		}
	}
	if len(r.all()) > 0 {
		t.Errorf("called: %v", r.all())
	}
}

// A line without end is answered once and ends the connection.
func TestEndlessLine(t *testing.T) {
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), theirs, &recorder{}, time.Minute) }()
	go ours.Write(make([]byte, 2*MaxLine)) // ends with the connection
	line, err := readLine(newLines(ours))
	if err != nil || !strings.Contains(string(line), string(Malformed)) {
		t.Errorf("%s, %v", line, err)
	}
	if err := <-served; !errors.Is(err, Malformed) {
		t.Error(err)
	}
	ours.Close()
}

func TestSilentConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	if err := Serve(t.Context(), theirs, &recorder{}, time.Millisecond); err != nil {
		t.Error(err)
	}
}

func TestRefuse(t *testing.T) {
	ours, theirs := net.Pipe()
	go Refuse(theirs, "not you")
	line, err := readLine(newLines(ours))
	if err != nil || !strings.Contains(string(line), `"not_allowed"`) {
		t.Errorf("%s, %v", line, err)
	}
}

// However long what is to be shown is, it can be sent after it was clipped.
func TestClip(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	s := Status{State: long, Detail: long + "\xff", Name: "\xff" + long, MDNSName: long, Relay: long, ClockState: long, Wifi: long}
	for range 200 {
		s.Addresses = append(s.Addresses, long)
		s.Devices = append(s.Devices, Device{ID: long, Desc: strings.Repeat("\x01", 600)})
	}
	clipped := s.Clip()
	if err := clipped.check(); err != nil {
		t.Error(err)
	}
	if len(clipped.Devices) != MaxDevices || len(s.Devices) != 200 || len(s.Devices[0].ID) != 2000 {
		t.Error("what is clipped is a copy")
	}
	if clipped.State != strings.Repeat("ä", 256) {
		t.Errorf("cut to %d bytes", len(clipped.State))
	}
	worst := strings.Repeat(`"<`, 1000)
	for range 200 {
		s.Addresses, s.Devices = append(s.Addresses[1:], worst), append(s.Devices[1:], Device{ID: worst, Desc: worst})
	}
	s.State, s.Detail, s.Name, s.MDNSName, s.Relay, s.ClockState, s.Wifi = worst, worst, worst, worst, worst, worst, worst
	if b, err := encode(call{Request: showStatus, Args: mustEncode(t, s.Clip())}); err != nil {
		t.Errorf("%v: %d bytes", err, len(b))
	}
	p := Pairing{VerificationURI: "u", UserCode: "c", Name: long, Relay: long}.Clip()
	if err := p.check(); err != nil {
		t.Error(err)
	}
}

func mustEncode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"request":"show_status","args":{"state":"s","devices":[{"id":"x"}],"offline_since":"2030-01-02T03:04:05Z"}}`))
	f.Add([]byte(`{"request":"facts"}`))
	f.Add([]byte(`{"request":"change_settings","args":{"hostname":"x","wifi_add":[{"ssid":"a"}],"ssh_add":["k"]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r := &recorder{}
		var a answer
		b := Answer(t.Context(), r, line)
		if err := json.Unmarshal(b, &a); err != nil || len(b) >= MaxLine {
			t.Fatalf("%s: %v", b, err)
		}
		if a.OK != (len(r.all()) == 1) || !a.OK && (a.Code == "" || a.Message == "") {
			t.Fatalf("%s after %d calls", b, len(r.all()))
		}
	})
}

// archive is an open file with this content.
func archive(t *testing.T, content string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// An archive comes as a descriptor, whose place both ends share.
func TestArchiveIsPassed(t *testing.T) {
	leak.Check(t)
	r := &recorder{}
	c := start(t, r, time.Minute)
	f := archive(t, "skipped, and the archive")
	if _, err := f.Seek(int64(len("skipped, ")), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	asked := InstallOllama{SHA256: strings.Repeat("0a", 32)}
	if err := c.InstallOllama(t.Context(), asked, f); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]any{[]any{asked, "and the archive"}}, r.all()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != int64(len("skipped, and the archive")) {
		t.Errorf("it was read up to %d, %v", at, err)
	}
	for name, err := range map[string]error{
		"a hash that is none": c.InstallOllama(t.Context(), InstallOllama{SHA256: strings.Repeat("0A", 32)}, f),
		"no archive":          c.order(t.Context(), installOllama, asked),
	} {
		if !errors.Is(err, Malformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// With another request it is closed, and does no harm.
	if _, err := c.with(t.Context(), online, nil, f); err != nil {
		t.Error(err)
	}
}

// Who hangs up gives it up; who goes on talking doesn't.
func TestArchiveIsGivenUp(t *testing.T) {
	leak.Check(t)
	r := &recorder{block: make(chan struct{}), began: make(chan struct{}, 3)}
	c := start(t, r, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	f := archive(t, "x")
	gone := make(chan error, 1)
	go func() { gone <- c.InstallOllama(ctx, InstallOllama{SHA256: strings.Repeat("0a", 32)}, f) }()
	<-r.began
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// leak.Check sees to it that the handler was told

	conn, err := net.Dial("unix", c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line := `{"request":"install_ollama","args":{"sha256":"` + strings.Repeat("0a", 32) + `"}}` + "\n"
	if _, err := (passing{conn, f}).Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	<-r.began
	if _, err := io.WriteString(conn, `{"request":"online"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	close(r.block)
	answers := bufio.NewReader(conn)
	for range 2 {
		if got, err := answers.ReadString('\n'); err != nil || got != `{"ok":true}`+"\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A handler without a model's server says so.
func TestNoOllama(t *testing.T) {
	c := start(t, struct{ Handler }{&recorder{}}, time.Minute)
	if err := c.RemoveOllama(t.Context(), RemoveOllama{}); !errors.Is(err, Unavailable) {
		t.Error(err)
	}
}
