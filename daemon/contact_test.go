package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"farhand/auth"
	"farhand/daemon/clock"
	"farhand/internal/pinned"
	"farhand/link"
)

func TestContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c contact
		if _, tried := c.offline(); tried {
			t.Error("tried before the first attempt")
		}
		down := errors.New("no route to host")
		for i, step := range []struct {
			err     error
			news    bool
			offline time.Duration // since when, by the test's clock; -1: reached
		}{
			{down, true, 0}, {down, false, 0}, {context.Canceled, false, 0},
			{&link.DialError{Status: 503}, true, -1}, // an answer is an answer
			{nil, false, -1},
			{fmt.Errorf("dial: %w", down), true, 5 * time.Minute}, {down, false, 5 * time.Minute},
		} {
			began := time.Now().Add(-time.Duration(i) * time.Minute)
			if news := c.saw(step.err); news != step.news {
				t.Errorf("step %d: news %v", i, news)
			}
			lost, tried := c.offline()
			if !tried || lost.IsZero() != (step.offline < 0) || !lost.IsZero() && !lost.Equal(began.Add(step.offline)) {
				t.Errorf("step %d: offline since %s, %v", i, lost, tried)
			}
			<-time.After(time.Minute)
		}
	})
}

func TestRequestsAreWatched(t *testing.T) {
	var seen []string
	w := watched{
		next: roundTrip(func(r *http.Request) (*http.Response, error) {
			seen = append(seen, "asks")
			if r.URL.Host == "gone" {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{StatusCode: 502, Body: http.NoBody}, nil
		}),
		before: func(context.Context) { seen = append(seen, "waits") },
		saw:    func(err error) { seen = append(seen, fmt.Sprint(err)) },
	}
	client := http.Client{Transport: w}
	if resp, err := client.Get("http://there/"); err != nil || resp.StatusCode != 502 {
		t.Error(err)
	}
	if _, err := client.Get("http://gone/"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	client.CloseIdleConnections()
	if got := strings.Join(seen, ", "); got != "waits, asks, <nil>, waits, asks, unexpected EOF" {
		t.Error(got)
	}
}

// What an error's words don't say is said beside it.
func TestReason(t *testing.T) {
	future := x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{NotBefore: time.Now().Add(240 * time.Hour)}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "log-in page"},
		{pinned.ErrPin, "log-in page"},
		{&tls.CertificateVerificationError{Err: future}, "clock may be wrong"},
		{&net.DNSError{Err: "no such host", Name: "relay.test", IsNotFound: true}, "name may be wrong"},
		{&net.DNSError{Err: "i/o timeout", Name: "relay.test", IsTimeout: true}, "i/o timeout"},
		{errors.New("connection refused"), "connection refused"},
	} {
		err := fmt.Errorf("reach relay.test: %w", c.err)
		if got := reason(err); !strings.HasPrefix(got, err.Error()) || !strings.Contains(got, c.want) || strings.Contains(got, "(") != (c.want != "i/o timeout" && c.want != "connection refused") {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A gateway whose relay is away answers as a platform does that offers no code. A
// machine that nobody can reach looks again.
func TestOfferedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		asked := 0
		var offered, away atomic.Bool
		d := newDaemon(Options{Log: log})
		d.services = &services{log: log}
		d.notify.Active = true
		d.provider = &auth.Provider{Base: "https://relay.test", HTTP: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			asked++
			switch {
			case away.Load():
				return nil, io.ErrUnexpectedEOF
			case offered.Load():
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"device_authorization_endpoint": "https://relay.test/d"}`))}, nil
			}
			return &http.Response{StatusCode: 404, Body: http.NoBody}, nil
		})}}
		var err error
		if d.source, err = auth.NewSource(d.provider, auth.NewStore(t.TempDir(), d.provider.Base, "")); err != nil {
			t.Fatal(err)
		}
		defer d.source.Close()
		waits := func(change func()) time.Duration {
			began := time.Now()
			time.AfterFunc(25*time.Minute, change)
			if err := d.loginNeeded(t.Context()); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if took := waits(func() { offered.Store(true) }); took != 3*offeredPause || asked != 3 || d.state != StateLoginNeeded {
			t.Errorf("offered again: seen after %s and %d questions, state %s", took, asked, d.state)
		}
		offered.Store(false)
		if took := waits(func() { away.Store(true) }); took != 3*offeredPause { // the loop above tells what is wrong
			t.Errorf("away: seen after %s", took)
		}
		away.Store(false)
		if took := waits(func() { offered.Store(true); d.poke() }); took != 25*time.Minute {
			t.Errorf("resumed: seen after %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.loginNeeded(ctx); err != nil || ctx.Err() == nil {
			t.Errorf("stopped: %v", err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// behind is a clock that stands on the image's date, with systemd-timesyncd at
// work.
func behind(t *testing.T) clock.Clock {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{"run/systemd/timesync/x": "", "run/farhand/slot": "clock=floor\n"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return clock.Clock{Root: root, Kernel: func() (bool, error) { return false, nil }}
}

// TestWaitsForTimeOnce: field case 77, the first certificate is judged after a
// bounded wait for the network's time; there is none without a network, and no
// second one.
func TestWaitsForTimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		online := false
		k := &timekeeper{clock: behind(t), inNetwork: func() bool { return online }}
		took := func(ctx context.Context) time.Duration {
			began := time.Now()
			k.settle(ctx)
			return time.Since(began)
		}
		if d := took(t.Context()); d != 0 {
			t.Errorf("without a network: %s", d)
		}
		online = true
		given, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d := took(given); d != time.Second {
			t.Errorf("given up after a second: %s", d)
		}
		if d := took(t.Context()); d != timePatience {
			t.Errorf("in a network: %s", d)
		}
		if d := took(t.Context()); d != 0 {
			t.Errorf("the second time: %s", d)
		}
	})
}

// TestHintsWithPauses: field case 77, what a certificate from the future leads
// to, and how often.
func TestHintsWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		began := time.Now()
		answer := errors.New("no answer")
		moved, set := 0, time.Time{}
		k := &timekeeper{
			clock: behind(t), doubt: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler),
			ask: func(context.Context) (time.Time, error) {
				asked = append(asked, time.Since(began))
				return time.Unix(1_800_000_000, 0), answer
			},
			set:   func(_ context.Context, at time.Time) error { set = at; return nil },
			moved: func() { moved++ },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.keep(ctx) }()
		future := x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{NotBefore: time.Now().Add(240 * time.Hour)}}
		doubt := func(during time.Duration) {
			for end := time.Now().Add(during); time.Now().Before(end); {
				k.saw(fmt.Errorf("dial: %w", future))
				<-time.After(time.Second)
			}
			synctest.Wait()
		}
		k.saw(errors.New("another trouble"))
		<-time.After(time.Minute)
		if len(asked) != 0 {
			t.Fatalf("asked at %v for no reason", asked)
		}
		doubt(20 * time.Minute)
		for i := 1; i < len(asked); i++ {
			want := min(hintPause<<(i-1), hintPauseMax)
			if gap := asked[i] - asked[i-1]; gap < want || gap > want+2*time.Second {
				t.Errorf("attempt %d after %s, want %s", i, gap, want)
			}
		}
		if len(asked) < 4 || moved != 0 {
			t.Errorf("asked at %v, moved %d times", asked, moved)
		}
		answer = nil
		doubt(11 * time.Minute)
		if moved == 0 || set.Unix() != 1_800_000_000 {
			t.Errorf("moved %d times, to %s", moved, set)
		}
		// A clock that is right is never moved.
		moved, k.clock.Kernel = 0, func() (bool, error) { return true, nil }
		doubt(15 * time.Minute)
		if moved != 0 {
			t.Error("a synchronised clock was moved")
		}
		cancel()
		<-done
	})
}
