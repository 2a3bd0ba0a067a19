package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/client"
	"farhand/daemon"
	"farhand/provision/request"
	"farhand/wire"
)

// fakeHelper stands where an appliance's root helper does, behind the same
// socket, and writes down what the daemon has it show.
type fakeHelper struct {
	mu      sync.Mutex
	told    []string
	pairing request.Pairing
	status  request.Status
	archive []byte // what Ollama was to be
	refuse  error  // what comes of that
}

func (h *fakeHelper) note(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, what)
	return nil
}

func (h *fakeHelper) ShowPairing(_ context.Context, p request.Pairing) error {
	h.mu.Lock()
	h.pairing = p
	h.mu.Unlock()
	return h.note("pairing " + p.UserCode)
}

func (h *fakeHelper) ShowStatus(_ context.Context, s request.Status) error {
	h.mu.Lock()
	h.status = s
	h.mu.Unlock()
	return h.note("status " + s.State + " " + s.Detail)
}

func (h *fakeHelper) Paired(context.Context) error                          { return h.note("paired") }
func (h *fakeHelper) Online(context.Context) error                          { return h.note("online") }
func (h *fakeHelper) Offline(context.Context, request.Offline) error        { return h.note("offline") }
func (h *fakeHelper) SetClockHint(context.Context, request.ClockHint) error { return h.note("clock") }

func (h *fakeHelper) Settings(context.Context) (s wire.Settings, err error) { return s, nil }
func (h *fakeHelper) ChangeSettings(context.Context, wire.SettingsChange) (s wire.Settings, err error) {
	return s, request.Unavailable
}
func (h *fakeHelper) KeepNetworks(context.Context, request.Reached) error { return nil }

func (h *fakeHelper) Facts(context.Context) (request.Facts, error) {
	built := uint32(1650000000) // April 2022
	return request.Facts{
		Slot: "b", SlotSource: "bootloader", Bootloader: request.Bootloader{BuildTimestamp: &built},
		Wifi:   request.WifiFacts{State: request.WifiNoCountry},
		Report: []request.Item{{Item: "wlan.country", Outcome: request.OutcomeRefused, Why: "it is missing"}},
	}, nil
}

func (h *fakeHelper) InstallOllama(_ context.Context, r request.InstallOllama, archive *os.File) error {
	b, err := io.ReadAll(archive)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.archive = b
	h.told = append(h.told, "install "+r.SHA256)
	return h.refuse
}

func (h *fakeHelper) RemoveOllama(_ context.Context, r request.RemoveOllama) error {
	return h.note(fmt.Sprint("uninstall ", r.Models))
}

// heard waits until the helper was told something that begins so.
func (h *fakeHelper) heard(t *testing.T, what string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q at the helper", what), func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, line := range h.told {
			if strings.HasPrefix(line, what) {
				return nil
			}
		}
		return fmt.Errorf("it heard %q", h.told)
	})
}

func (h *fakeHelper) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = nil
}

func (h *fakeHelper) code() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pairing.UserCode
}

// appliance makes the bench's daemon one with a helper: the environment that its
// programs need.
func (b *bench) appliance() (*fakeHelper, string) {
	b.t.Helper()
	run := filepath.Join(b.dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		b.t.Fatal(err)
	}
	socket := filepath.Join(run, "provision.sock")
	b.config = append(b.config, fmt.Sprintf("provision_socket = %q", socket))
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.t.Fatal(err)
	}
	h := &fakeHelper{}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { request.Serve(ctx, conn, h, time.Minute) })
		}
	})
	b.t.Cleanup(func() {
		cancel()
		l.Close()
		serving.Wait()
	})
	return h, "RUNTIME_DIRECTORY=" + run
}

// applianceStatus asks the daemon beside its helper.
func (b *bench) applianceStatus(env string) daemon.Status {
	b.t.Helper()
	r := runProgram(b.t, b.env(env), "", b.here(), program("farhandd"), "--config", b.toml(), "status", "--json")
	if r.code != 0 {
		b.t.Fatalf("status gives %+v", r)
	}
	return parse[daemon.Status](b.t, r.stdout)
}

// What the card's owner sees beside the machine: no network, the code, the same
// code after a power cut, and that it is paired.
func TestHelperShowsIt(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	helper, env := b.appliance()
	b.startDaemon(env)
	helper.heard(t, "offline")
	helper.heard(t, "status pairing")
	b.startRelay()
	b.signIn("--setup", b.relay.await(0, `setup token: (\S+)`)[1])
	helper.heard(t, "online")
	helper.heard(t, "pairing ")
	first := helper.code()

	// Field case 78: the code on the card still works after a power cut.
	b.daemon.kill()
	helper.forget()
	b.startDaemon(env)
	helper.heard(t, "pairing "+first)

	helper.forget()
	b.approve(0, "files")
	b.daemon.await(0, `^Online`)
	helper.heard(t, "paired")
	helper.heard(t, "status connected")
	s := b.applianceStatus(env)
	if m := s.Machine; m.Slot != "b" || m.Updatable || !strings.Contains(m.NotUpdatable, "2022-04-15 is too old") || m.Wifi != request.WifiNoCountry || len(m.Provisioned) != 1 || m.OfflineSince != nil {
		t.Errorf("status says %+v", m)
	}
	helper.mu.Lock()
	shown := helper.status
	helper.mu.Unlock()
	if shown.Name != "bench" || shown.Relay != b.url || len(shown.Devices) == 0 || shown.ClockState == "" || shown.Wifi != request.WifiNoCountry {
		t.Errorf("the screen shows %+v", shown)
	}

	machine := func() client.Machine {
		t.Helper()
		return parse[client.Machine](t, b.owner.must("machines", "bench", "--json"))
	}
	eventually(t, "the facts at the relay", func() error {
		if f := machine().Facts; f == nil || f.Slot != "b" || f.Wifi != request.WifiNoCountry || f.ClockState == "" || f.Bootloader == 0 {
			return fmt.Errorf("they are %+v", f)
		}
		return nil
	})
	if text := b.owner.must("machines", "bench"); !strings.Contains(text, "2022-04-15") || !strings.Contains(text, "daemon started") {
		t.Errorf("farhand says\n%s", text)
	}

	// A power cut between approval and cleaning: the card is cleaned all the same.
	// Field case 86: it is a daemon that started anew.
	started := machine().BootID
	b.daemon.kill()
	helper.forget()
	b.startDaemon(env)
	helper.heard(t, "paired")
	b.daemon.await(0, `^Online`)
	if again := machine().BootID; again == started || again == "" {
		t.Errorf("after a restart the boot id is %q as before", again)
	}

	b.relay.kill()
	helper.heard(t, "offline")
	helper.heard(t, "status offline")
}

// A card with a claim key lets itself in with nobody looking, however late the
// network comes, and never shows a code.
func TestClaimKeyOfTheCard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	helper, env := b.appliance()
	made := parse[client.IssuedClaim](b.t, b.owner.must("claim", "create", "--json", "--name", "bench", "--allow", "files,shell"))
	file := filepath.Join(b.dir, "run", "claim")
	b.write(file, made.ClaimKey+"\n")
	b.relay.stop()

	b.startDaemon(env)
	helper.heard(t, "status pairing redeeming the claim key")
	b.daemon.await(0, "isn't redeemed yet")
	b.daemon.kill() // a power cut while it waits
	b.startRelay()
	b.startDaemon(env)
	b.daemon.await(0, `^Online`)
	helper.heard(t, "paired")
	eventually(t, "the key's file to be gone", func() error {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
	if code := helper.code(); code != "" {
		t.Errorf("the code %s was shown", code)
	}
	b.owner.must("exec", "--", "true")

	// Let out again by its owner, it doesn't come back by the same key, even if
	// that lies there again: it shows a code, and why.
	b.write(file, made.ClaimKey)
	helper.forget()
	b.owner.must("machines", "bench")
	b.owner.must("revoke", "bench", "--yes")
	helper.heard(t, "pairing ")
}

// A key that is no good is refused once and for all; a person can still pair.
func TestBadClaimKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	helper, env := b.appliance()
	file := filepath.Join(b.dir, "key")
	b.write(file, "fh_ck_nonsense\n")
	b.config = append(b.config, fmt.Sprintf("claim_key_file = %q", file))
	b.startDaemon(env)
	helper.heard(t, "pairing ")
	helper.mu.Lock()
	note := helper.pairing.Note
	helper.mu.Unlock()
	if !strings.Contains(note, "isn't accepted") {
		t.Errorf("the screen says %q", note)
	}
	if s := b.applianceStatus(env); !strings.Contains(s.Detail, "isn't accepted") || s.Pairing == nil {
		t.Errorf("status says %+v", s)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the refused key is still there: %v", err)
	}
	b.approve(0, "files")
	b.daemon.await(0, `^Online`)
	if s := b.applianceStatus(env); strings.Contains(s.Detail, "accepted") {
		t.Errorf("status says %+v", s)
	}
}
