package provision

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/provision/preseed"
	"farhand/provision/request"
	"farhand/provision/serve"
)

func (m *machine) server() *Server {
	m.t.Helper()
	srv, err := NewServer(m.System, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			m.t.Error(err)
		}
	})
	return srv
}

func pairing(code string) request.Pairing {
	return request.Pairing{
		VerificationURI: "https://relay.example/pair", VerificationURIComplete: "https://relay.example/pair?code=" + code,
		UserCode: code, ExpiresAt: time.Date(2030, 1, 1, 1, 0, 0, 0, time.UTC), Relay: "https://relay.example", Name: "bench",
	}
}

// The code stands on the card as text and as a picture, is written once for each
// code, and is gone after pairing.
func TestCodeOnTheCard(t *testing.T) {
	m := withCard(t)
	m.boot()
	srv := m.server()
	for range 2 {
		if err := srv.ShowPairing(t.Context(), pairing("BCDF-GHJK")); err != nil {
			t.Fatal(err)
		}
		if got := text(t, filepath.Join(m.card, pairText)); !strings.Contains(got, "BCDF-GHJK") || !strings.Contains(got, "https://relay.example/pair") {
			t.Errorf("%s: %s", pairText, got)
		}
		if _, err := png.Decode(bytes.NewReader([]byte(text(t, filepath.Join(m.card, pairPicture))))); err != nil {
			t.Error(err)
		}
		if err := os.Remove(filepath.Join(m.card, pairPicture)); err != nil {
			t.Fatal(err)
		}
		m.onCard(pairPicture, text(t, "testdata/pixel.png")) // seen if it is written again
		if !strings.Contains(m.names(), pairPicture) {
			t.Fatal(m.names())
		}
	}
	if got, want := text(t, filepath.Join(m.card, pairPicture)), text(t, "testdata/pixel.png"); got != want {
		t.Error("the same code was written twice")
	}
	if err := srv.Paired(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := m.names(); names != "autoboot.txt bootcode.bin" {
		t.Errorf("card: %s", names)
	}
	if !m.stored().Paired {
		t.Error("not kept")
	}
}

// A code that stands on the card from before isn't written again. One is written
// in this boot, and then none for an hour, whatever the daemon asks for in
// between and however often the process ends.
func TestCardIsWrittenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCard(t)
		m.boot()
		m.onCard(pairText, "BCDF-GHJK was here\n")
		show := func(srv *Server, code string) string {
			t.Helper()
			if err := srv.ShowPairing(t.Context(), pairing(code)); err != nil {
				t.Fatal(err)
			}
			return text(t, filepath.Join(m.card, pairText))
		}
		srv := m.server()
		if got := show(srv, "BCDF-GHJK"); got != "BCDF-GHJK was here\n" {
			t.Errorf("written again: %s", got)
		}
		if got := show(srv, "LMNP-QRST"); !strings.Contains(got, "LMNP-QRST") {
			t.Errorf("a new code isn't written: %s", got)
		}
		if got := show(srv, "VWXZ-BCDF"); strings.Contains(got, "VWXZ-BCDF") {
			t.Error("written twice within an hour")
		}
		if err := srv.Paired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := show(srv, "VWXZ-BCDF"); got != "(none)" {
			t.Errorf("written anew after pairing: %s", got)
		}
		again := m.server()
		if got := show(again, "VWXZ-BCDF"); got != "(none)" {
			t.Errorf("written anew by another process: %s", got)
		}
		<-time.After(codeEvery)
		if got := show(again, "VWXZ-BCDF"); !strings.Contains(got, "VWXZ-BCDF") {
			t.Error("never written again")
		}
	})
}

// Who has a machine without a screen, and looks at its card since it never came, is
// told why; seldom, and no longer than until it is paired.
func TestWhyOnTheCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCard(t)
		m.boot()
		srv := m.server()
		trouble := request.Status{State: "pairing", Detail: "redeeming the claim key of this card; trying again: no such host", Relay: "https://relay.example", Addresses: []string{"192.0.2.7"}}
		show := func(srv *Server, st request.Status) string {
			t.Helper()
			if err := srv.ShowStatus(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			return text(t, filepath.Join(m.card, statusText))
		}
		if got := show(srv, trouble); got != "(none)" {
			t.Errorf("written at once: %s", got)
		}
		<-time.After(statusAfter)
		if got := show(srv, request.Status{State: "connected"}); got != "(none)" {
			t.Errorf("written although it is connected: %s", got)
		}
		got := show(srv, trouble)
		for _, want := range []string{"Connecting to relay.example", "no such host", "192.0.2.7", "after the start."} {
			if !strings.Contains(got, want) {
				t.Errorf("there is no %q in\n%s", want, got)
			}
		}
		other := trouble
		other.Detail = "asking the platform for a code; trying again: connection refused"
		if got := show(m.server(), other); strings.Contains(got, "refused") {
			t.Errorf("written twice within an hour: %s", got)
		}
		if err := srv.ShowPairing(t.Context(), pairing("BCDF-GHJK")); err != nil || !strings.Contains(text(t, filepath.Join(m.card, pairText)), "BCDF-GHJK") {
			t.Errorf("the code has to wait: %v", err)
		}
		<-time.After(codeEvery)
		if got := show(srv, other); !strings.Contains(got, "refused") {
			t.Errorf("never written again: %s", got)
		}
		if err := srv.Paired(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(codeEvery)
		if got := show(srv, trouble); got != "(none)" {
			t.Errorf("of a machine that has an owner: %s", got)
		}
		if names := m.names(); names != "autoboot.txt bootcode.bin" {
			t.Errorf("card: %s", names)
		}
	})
}

func TestClonedUntilPaired(t *testing.T) {
	m := withCard(t)
	m.boot()
	m.write("/proc/device-tree/serial-number", "1000000011111111\x00")
	m.boot()
	m.boot()
	srv := m.server()
	if f, err := srv.Facts(t.Context()); err != nil || !f.Cloned {
		t.Errorf("%+v, %v", f, err)
	}
	if err := srv.Paired(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f, err := srv.Facts(t.Context()); err != nil || f.Cloned || !m.stored().Paired {
		t.Errorf("%+v, %v", f, err)
	}
}

// A network that a visitor entered counts over the card's from then on.
func TestEnteredNetwork(t *testing.T) {
	m := withCard(t)
	m.boot()
	srv := m.server()
	w := preseed.Wifi{SSID: []byte("other"), Passphrase: "battery staple"}
	if err := errors.Join(srv.apply(t.Context(), w, "FR"), srv.join(t.Context())); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if m.file("/var/lib/iwd/net.psk") != "(none)" || !strings.Contains(m.file("/var/lib/iwd/other.psk"), "battery staple") || !strings.Contains(m.file("/run/farhand/iwd/main.conf"), "Country=FR") {
			t.Error("it isn't known")
		}
	}
	check()
	if !m.did("systemctl restart iwd.service") {
		t.Errorf("iwd wasn't restarted: %q", m.ran)
	}
	if err := os.Remove(m.path("/var/lib/iwd/other.psk")); err != nil {
		t.Fatal(err)
	}
	m.boot()
	check()
	if s := m.stored().Settings; string(s.Wifi.SSID) != "net" {
		t.Error("the card's own network is lost")
	}
}

// What can't be kept is said and done all the same.
func TestServerWithoutBoot(t *testing.T) {
	m := newMachine(t)
	srv := m.server()
	if err := srv.ShowPairing(t.Context(), pairing("BCDF-GHJK")); err != nil {
		t.Error(err)
	}
	if _, err := srv.Facts(t.Context()); err != nil {
		t.Error(err)
	}
	if err := srv.ShowStatus(t.Context(), request.Status{State: "connected"}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(srv.Offline(t.Context(), request.Offline{Since: time.Now()}), srv.Online(t.Context())); err != nil {
		t.Error(err)
	}
}

// The whole way of a request: socket, server, card, answer.
func TestOverTheSocket(t *testing.T) {
	m := withCard(t)
	m.boot()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve.Run(ctx, l, serve.Options{Handler: m.server(), Users: []uint32{uint32(os.Getuid())}, Log: m.Log})
	}()
	c := request.Client{Path: path, Timeout: time.Minute} // the machine may have other work
	if err := c.ShowPairing(t.Context(), pairing("BCDF-GHJK")); err != nil {
		t.Error(err)
	}
	if got := text(t, filepath.Join(m.card, pairText)); !strings.Contains(got, "BCDF-GHJK") {
		t.Error(got)
	}
	f, err := c.Facts(t.Context())
	if err != nil || f.Slot != "a" || f.SlotSource != "bootloader" || len(f.Report) == 0 {
		t.Errorf("%+v, %v", f, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What stands on a card can be anything, and what is told of it is bounded: the
// report is stored, and goes through the socket.
func TestReportOfNonsenseIsBounded(t *testing.T) {
	m := newMachine(t)
	table := "[" + strings.Repeat("x", preseed.MaxFile/2) + "]\n"
	m.onCard(preseed.FarhandFile, "name = \"bench\"\n"+table+strings.Repeat("y = 1\n", 200))
	m.onCard(preseed.PreseedFile, strings.Repeat(strings.Repeat("z", 500)+" = 1\n", 120))
	m.boot()
	m.boot()
	if st := m.stored(); st.Settings.Farhand.Name != "bench" {
		t.Error("the settings are lost")
	}
	answer := request.Answer(t.Context(), m.server(), []byte(`{"request":"facts"}`))
	if !strings.HasPrefix(string(answer), `{"ok":true`) {
		t.Errorf("%.200s", answer)
	}
}
