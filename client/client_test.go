package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/internal/leak"
	"farhand/wire"
)

// setup starts a relay and a client of its owner.
func setup(t *testing.T) (*clienttest.Relay, *client.Client) {
	t.Helper()
	leak.Check(t)
	r := clienttest.New(t)
	return r, connect(t, client.Config{URL: r.URL, Token: clienttest.OwnerToken})
}

func connect(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t *testing.T, c *client.Client) *client.Session {
	t.Helper()
	s, err := c.Open(t.Context(), client.Place{Machine: clienttest.MachineName})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAccount(t *testing.T) {
	r, _ := setup(t)
	c := connect(t, client.Config{URL: r.URL})
	in, err := c.Login(t.Context(), clienttest.OwnerName, clienttest.Passphrase)
	if err != nil || in.Token != clienttest.OwnerToken || in.Owner.Name != clienttest.OwnerName {
		t.Fatalf("Login = %+v, %v", in, err)
	}
	if _, err := c.Login(t.Context(), clienttest.OwnerName, "wrong"); !errors.Is(err, wire.AuthFailed) {
		t.Fatalf("Login with a wrong passphrase: %v, want AUTH_FAILED", err)
	}
	if _, err := c.Whoami(t.Context()); !errors.Is(err, wire.AuthFailed) {
		t.Fatalf("Whoami without a token: %v, want AUTH_FAILED", err)
	}
	if in, err := c.Setup(t.Context(), clienttest.SetupToken, clienttest.OwnerName, clienttest.Passphrase); err != nil || in.Token == "" {
		t.Fatalf("Setup = %+v, %v", in, err)
	}
	me, err := connect(t, client.Config{URL: r.URL, Token: in.Token}).Whoami(t.Context())
	if err != nil || !me.Login || me.Owner.Name != clienttest.OwnerName || me.Machines != nil {
		t.Fatalf("Whoami = %+v, %v", me, err)
	}
}

func TestManagement(t *testing.T) {
	r, c := setup(t)
	ctx := t.Context()
	m, err := c.Machine(ctx, "p")
	if err != nil || m.ID != clienttest.MachineID {
		t.Fatalf("Machine by a prefix = %+v, %v", m, err)
	}
	if _, err := c.Machine(ctx, "nope"); !errors.Is(err, wire.MachineNotAttached) {
		t.Fatalf("an unknown machine: %v", err)
	}
	p, err := c.Pending(ctx, "bcdf ghjk")
	if err != nil || p.SerialSuffix != "9f3a" {
		t.Fatalf("Pending = %+v, %v", p, err)
	}
	done, err := c.Approve(ctx, clienttest.UserCode, client.Decision{Approve: true, Name: "bench", Capabilities: []wire.Capability{wire.Files}})
	if err != nil || done.Name != "bench" {
		t.Fatalf("Approve = %+v, %v", done, err)
	}
	if got, want := r.Body("POST /api/approvals/BCDF-GHJK"), `{"decision":"approve","name":"bench","capabilities":["files"]}`; got != want {
		t.Errorf("approval was %s, want %s", got, want)
	}
	made, err := c.CreateToken(ctx, client.NewToken{Name: "ci", Machines: []string{}, Expires: clienttest.Epoch()})
	if err != nil || made.Token == "" {
		t.Fatalf("CreateToken = %+v, %v", made, err)
	}
	if got, want := r.Body("POST /api/tokens"), `{"name":"ci","machines":[],"expires":"2026-11-29T12:00:00Z"}`; got != want {
		t.Errorf("token was %s, want %s", got, want)
	}
	list, err := c.Tokens(ctx)
	tokens := list.Tokens
	if err != nil || len(list.Logins) != 1 || len(tokens) != 1 || tokens[0].Machines == nil || len(*tokens[0].Machines) != 0 || tokens[0].Capabilities != nil {
		t.Fatalf("Tokens = %+v, %v", tokens, err)
	}
	if err := c.RevokeToken(ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	report, err := c.AuditVerify(ctx, "pi")
	if err != nil || !report.OK || report.Anchor.Seq != 41 {
		t.Fatalf("AuditVerify = %+v, %v", report, err)
	}
	if err := c.Revoke(ctx, "pi"); err != nil {
		t.Fatal(err)
	}
	if all, err := c.Machines(ctx); err != nil || len(all) != 0 {
		t.Fatalf("Machines after the last was revoked = %v, %v", all, err)
	}
}

func TestUserCode(t *testing.T) {
	for in, want := range map[string]string{
		"BCDF-GHJK": "BCDF-GHJK", "bcdfghjk": "BCDF-GHJK", " bc df-gh jk ": "BCDF-GHJK", "BCDF–GHJK": "BCDF-GHJK", "abc": "abc", "": "",
	} {
		if got := client.UserCode(in); got != want {
			t.Errorf("UserCode(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParseURL(t *testing.T) {
	good := map[string]string{
		"https://relay.example.org":      "https://relay.example.org",
		"https://Relay.example.org:7443": "https://relay.example.org:7443",
		"relay.example.org/farhand/":     "https://relay.example.org/farhand",
		"localhost:7443":                 "http://localhost:7443",
		"127.0.0.1:7443":                 "http://127.0.0.1:7443",
		"[::1]:7443":                     "http://[::1]:7443",
		"http://127.9.9.9/":              "http://127.9.9.9",
		"https://localhost":              "https://localhost",
	}
	for in, want := range good {
		if u, err := client.ParseURL(in); err != nil || u.String() != want {
			t.Errorf("ParseURL(%q) = %v, %v; want %s", in, u, err, want)
		}
	}
	for _, in := range []string{
		"", "http://relay.example.org", "http://10.0.0.1", "ftp://x", "https://", "https://ann:secret@x", "https://x?token=1",
		"https://x#f", "http://localhost.example.org", "http://127.0.0.1.example.org", "https://[::1", "ws://localhost",
	} {
		u, err := client.ParseURL(in)
		if err == nil {
			t.Errorf("ParseURL(%q) = %v, want an error", in, u)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseURL(%q) shows the password: %v", in, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"https://relay.example.org:7443", "localhost:1", "http://10.0.0.1", "[::1]", "//", "https://%41/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		u, err := client.ParseURL(in)
		if err != nil {
			return
		}
		if u.Scheme != "https" && (u.Scheme != "http" || !client.IsLoopback(u.Hostname())) {
			t.Fatalf("ParseURL(%q) = %s", in, u)
		}
		if again, err := client.ParseURL(u.String()); err != nil || again.String() != u.String() {
			t.Fatalf("ParseURL(%q) = %s, and of that %v, %v", in, u, again, err)
		}
	})
}

func FuzzUserCode(f *testing.F) {
	for _, seed := range []string{"BCDF-GHJK", "bcdf ghjk", "", "\u2013"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if got := client.UserCode(in); client.UserCode(got) != got {
			t.Fatalf("UserCode(%q) = %q, and of that %q", in, got, client.UserCode(got))
		}
	})
}

func TestTrust(t *testing.T) {
	leak.Check(t)
	r, pin := clienttest.NewTLS(t)
	ask := func(t *testing.T, url, pin string) error {
		c := connect(t, client.Config{URL: url, Token: clienttest.OwnerToken, CASHA256: pin})
		if _, err := c.Whoami(t.Context()); err != nil {
			return err
		}
		_, err := c.Devices(t.Context(), "pi", "") // the WebSocket, under the same rule
		return err
	}
	for _, good := range []string{pin, strings.ToUpper(pin)} {
		if err := ask(t, r.URL, good); err != nil {
			t.Errorf("with the pin %s: %v", good, err)
		}
	}
	other := strings.Repeat("0", 64)
	byName := strings.Replace(r.URL, "127.0.0.1", "localhost", 1) // not a name of httptest's certificate
	for name, err := range map[string]error{
		"no pin":          ask(t, r.URL, ""),
		"another pin":     ask(t, r.URL, other),
		"another address": ask(t, byName, pin),
	} {
		if !errors.Is(err, client.RelayUntrusted) {
			t.Errorf("%s: %v, want RELAY_UNTRUSTED", name, err)
		}
	}
	plain := strings.Replace(r.URL, "https://", "http://", 1)
	if err := ask(t, plain, ""); !errors.Is(err, client.RelayUnreachable) || !strings.Contains(err.Error(), "it speaks https") {
		t.Errorf("plain http to a TLS port: %v", err)
	}
	if _, err := client.New(client.Config{URL: r.URL, CASHA256: "12"}); err == nil {
		t.Error("a malformed pin was taken")
	}
}

func TestRefusals(t *testing.T) {
	r, c := setup(t)
	for name, refuse := range map[string]struct {
		status int
		e      *wire.Error
		want   error
	}{
		"a code of the relay":  {409, wire.Errorf(wire.MachineAmbiguous, "which?"), wire.MachineAmbiguous},
		"a status of a proxy":  {502, &wire.Error{}, client.RelayUnreachable},
		"the relay itself":     {503, wire.Errorf("UNAVAILABLE", "cut off"), client.RelayUnreachable},
		"the machine":          {503, wire.Errorf(wire.MachineUnreachable, "away"), wire.MachineUnreachable},
		"a page of some other": {404, &wire.Error{}, wire.InternalError},
	} {
		r.Change(func() {
			r.Refuse = func(*http.Request) (int, *wire.Error) { return refuse.status, refuse.e }
		})
		if _, err := c.Machines(t.Context()); !errors.Is(err, refuse.want) {
			t.Errorf("%s: %v, want %v", name, err, refuse.want)
		}
		if _, err := c.Devices(t.Context(), "pi", ""); !errors.Is(err, refuse.want) {
			t.Errorf("%s, at the upgrade: %v, want %v", name, err, refuse.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	leak.Check(t)
	c := connect(t, client.Config{URL: "http://127.0.0.1:1", Token: "t"})
	const want = "the relay at 127.0.0.1:1 can't be reached: connect: "
	if _, err := c.Machines(t.Context()); !errors.Is(err, client.RelayUnreachable) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want RELAY_UNREACHABLE", err)
	}
	if _, err := c.Devices(t.Context(), "pi", ""); !errors.Is(err, client.RelayUnreachable) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want RELAY_UNREACHABLE", err)
	}
	c = connect(t, client.Config{URL: "http://localhost:1", Token: "t"})
	if _, err := c.Machines(t.Context()); err == nil || !strings.Contains(err.Error(), "can't be reached: ") || !strings.Contains(err.Error(), ":1: connect: ") {
		t.Errorf("%v, want where it tried", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Machines(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestFiles(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	ctx := t.Context()
	if info := s.Info(); info.Root != "/data/work" || info.MachineID != clienttest.MachineID || !info.Created {
		t.Fatalf("Info = %+v", info)
	}
	content := make([]byte, 300<<10)
	rand.Read(content)
	var seen []int64
	err := s.Write(ctx, "data.bin", content, false, func(done, total int64) {
		if total != int64(len(content)) || done > total {
			t.Errorf("progress %d of %d", done, total)
		}
		seen = append(seen, done)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := r.Device.Get("/data/work/data.bin"); !bytes.Equal(got, content) {
		t.Fatal("what was written isn't what was sent")
	}
	if !slices.IsSorted(seen) || len(seen) < 2 || seen[len(seen)-1] != int64(len(content)) {
		t.Errorf("progress was %v", seen)
	}
	stat, err := s.Stat(ctx, "/data/work/data.bin", true)
	if err != nil || !stat.Exists || *stat.SizeBytes != int64(len(content)) {
		t.Fatalf("Stat = %+v, %v", stat, err)
	}
	part, err := s.Read(ctx, "data.bin", 1000, 10)
	if err != nil || !bytes.Equal(part.Content, content[1000:1010]) || !part.Truncated {
		t.Fatalf("Read = %+v, %v", part, err)
	}
	if err := s.Move(ctx, wire.FileMove{Src: "data.bin", Dst: "hello.txt"}); !errors.Is(err, wire.PathExists) {
		t.Fatalf("Move onto a file: %v", err)
	}
	if err := s.Move(ctx, wire.FileMove{Src: "data.bin", Dst: "moved.bin"}); err != nil {
		t.Fatal(err)
	}
	list, err := s.List(ctx, wire.FileList{Path: "."})
	if err != nil || len(list.Entries) != 3 {
		t.Fatalf("List = %+v, %v", list, err)
	}
	if err := s.Delete(ctx, wire.FileDelete{Path: "moved.bin"}); err != nil {
		t.Fatal(err)
	}
	err = s.Delete(ctx, wire.FileDelete{Path: "moved.bin"})
	var e *wire.Error
	if !errors.Is(err, wire.PathNotFound) || !errors.As(err, &e) || e.Details["path"] != "/data/work/moved.bin" {
		t.Fatalf("Delete of nothing: %v", err)
	}
}

func TestReadAll(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	content := make([]byte, 4<<20+12345) // three pieces of at most 2 MiB
	rand.Read(content)
	r.Device.Set("/data/work/big", content)
	copyAll := func(t *testing.T, path string) (client.Copied, []byte, error) {
		var got bytes.Buffer
		last := int64(-1)
		done, err := s.ReadAll(t.Context(), path, &got, func(done, total int64) {
			if done <= last || done > total {
				t.Errorf("progress went from %d to %d of %d", last, done, total)
			}
			last = done
		})
		return done, got.Bytes(), err
	}
	done, got, err := copyAll(t, "big")
	if err != nil || !bytes.Equal(got, content) || done.Bytes != int64(len(content)) || done.Changed {
		t.Fatalf("ReadAll = %+v, %v; equal %t", done, err, bytes.Equal(got, content))
	}
	content = content[:2<<20+1]
	r.Device.Set("/data/work/big", content)
	r.Device.Change(func() { r.Device.MaxFile = 1 << 20 }) // a device that gives less at once
	if done, got, err = copyAll(t, "big"); err != nil || !bytes.Equal(got, content) || done.Changed {
		t.Fatalf("ReadAll with small pieces = %+v, %v", done, err)
	}
	r.Device.Set("/data/work/none", []byte{})
	if done, got, err = copyAll(t, "none"); err != nil || len(got) != 0 || done.Changed {
		t.Fatalf("ReadAll of an empty file = %+v, %v", done, err)
	}
	for path, want := range map[string]wire.Code{"nope": wire.PathNotFound, ".": wire.InternalError} {
		if _, _, err := copyAll(t, path); !errors.Is(err, want) {
			t.Errorf("ReadAll(%s): %v, want %s", path, err, want)
		}
	}
}

func TestReadAllNoticesChanges(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	r.Device.Set("/data/work/f", bytes.Repeat([]byte("a"), 5<<20))
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TFileRead { // it becomes shorter before the first piece leaves
				r.Device.Set("/data/work/f", []byte("short"))
			}
			return "", nil, clienttest.ErrPass
		}
	})
	var got bytes.Buffer
	done, err := s.ReadAll(t.Context(), "f", &got, nil)
	if err != nil || !done.Changed || got.String() != "short" {
		t.Fatalf("ReadAll = %+v, %v, %q", done, err, got.String())
	}
}

func TestReadAllEndsWithItsWriter(t *testing.T) {
	r, c := setup(t) // with its leak check
	s := open(t, c)
	r.Device.Set("/data/work/f", make([]byte, 9<<20))
	full := errors.New("disk full")
	if _, err := s.ReadAll(t.Context(), "f", writerFunc(func([]byte) (int, error) { return 0, full }), nil); !errors.Is(err, full) {
		t.Fatalf("%v, want the writer's error", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWriteTooLarge(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	err := s.Write(t.Context(), "f", make([]byte, wire.MaxBinary+1), false, nil)
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.FileTooLarge || e.Details["max_file_size_bytes"] != int64(wire.MaxBinary) {
		t.Fatalf("%v, want FILE_TOO_LARGE with the limit", err)
	}
	if slices.Contains(r.Calls(), "FILE_WRITE") {
		t.Fatal("it was sent all the same")
	}
	r.Device.Change(func() { r.Device.MaxFile = 1000 })
	if err := s.Write(t.Context(), "f", make([]byte, 1001), false, nil); !errors.Is(err, wire.FileTooLarge) {
		t.Fatalf("%v, want the device's FILE_TOO_LARGE", err)
	}
	r.Device.Change(func() { r.Device.MaxFile = wire.MaxBinary })
	if err := s.Write(t.Context(), "f", make([]byte, wire.MaxBinary), false, nil); err != nil {
		t.Fatalf("the largest that fits: %v", err)
	}
}

func TestExecAndSerial(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	ctx := t.Context()
	if _, err := s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"true"}}); !errors.Is(err, wire.CapabilityNotGranted) {
		t.Fatalf("Exec where the shell is off: %v", err)
	}
	r.Device.Change(func() {
		r.Device.Exec = func(cmd wire.ExecuteCommand) (wire.CommandResult, error) {
			return wire.CommandResult{Stdout: strings.Join(cmd.Argv, " "), ExitCode: 3}, nil
		}
	})
	out, err := s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"a", "b"}})
	if err != nil || out.Stdout != "a b" || out.ExitCode != 3 {
		t.Fatalf("Exec = %+v, %v", out, err)
	}
	list, err := c.Devices(ctx, "pi", "serial")
	if err != nil || len(list.Devices) != 1 || list.Devices[0].ID != clienttest.SerialID {
		t.Fatalf("Devices = %+v, %v", list, err)
	}
	data, err := s.SerialTransact(ctx, clienttest.SerialID, wire.SerialTransact{Data: []byte("*IDN?\n"), Until: []byte("\n")}, true)
	if err != nil || string(data.Data) != "ACME,42,0,1.0\n" || data.StopReason != "until" {
		t.Fatalf("SerialTransact = %+v, %v", data, err)
	}
	if got, want := r.Body("HARDWARE_OP"), `{"device":"serial:usb-2341:0043-95530","op":"SERIAL_TRANSACT","args":{"data":"KklETj8K","until":"Cg=="},"hold":true}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	if n, err := s.SerialWrite(ctx, clienttest.SerialID, wire.SerialWrite{Data: []byte("abc")}, false); err != nil || n.BytesWritten != 3 {
		t.Fatalf("SerialWrite = %+v, %v", n, err)
	}
	if got, err := s.SerialRead(ctx, clienttest.SerialID, wire.SerialRead{}, false); err != nil || !got.TimedOut {
		t.Fatalf("SerialRead = %+v, %v", got, err)
	}
	if lines, err := s.SerialControl(ctx, clienttest.SerialID, wire.SerialControl{}, false); err != nil || !lines.DTR {
		t.Fatalf("SerialControl = %+v, %v", lines, err)
	}
	if err := s.Release(ctx, clienttest.SerialID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hardware(ctx, wire.HardwareOp{Device: "nope", Op: wire.OpRelease}, nil); !errors.Is(err, wire.HardwareNotFound) {
		t.Fatalf("an unknown device: %v", err)
	}
}

// Many requests at once, answered in another order than they came.
func TestConcurrentRequests(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	const n = 100
	var waiting sync.WaitGroup
	waiting.Add(n)
	r.Device.Change(func() {
		r.Device.Exec = func(cmd wire.ExecuteCommand) (wire.CommandResult, error) {
			waiting.Done()
			waiting.Wait() // nobody is answered before all have asked
			return wire.CommandResult{Stdout: cmd.Argv[0]}, nil
		}
	})
	var tasks sync.WaitGroup
	for i := range n {
		tasks.Go(func() {
			want := strings.Repeat("x", i)
			if out, err := s.Exec(t.Context(), wire.ExecuteCommand{Argv: []string{want}}); err != nil || out.Stdout != want {
				t.Errorf("request %d was answered with %q, %v", i, out.Stdout, err)
			}
		})
	}
	tasks.Wait()
}

// A link that is lost is dialled again: what may be repeated is, what may not
// is reported as unconfirmed.
func TestLostLink(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	ctx := t.Context()
	cut := func(want wire.Type) clienttest.Handler {
		var once sync.Once
		return func(env wire.Envelope) (wire.Type, any, error) {
			lost := false
			if env.Type == want {
				once.Do(func() { r.Cut(); lost = true })
			}
			if lost {
				return "", nil, nil
			}
			return "", nil, clienttest.ErrPass
		}
	}
	r.Change(func() { r.Handle = cut(wire.TFileStat) })
	if stat, err := s.Stat(ctx, "hello.txt", true); err != nil || !stat.Exists {
		t.Fatalf("a repeatable request over a lost link = %+v, %v", stat, err)
	}
	r.Change(func() { r.Handle = cut(wire.TFileDelete) })
	err := s.Delete(ctx, wire.FileDelete{Path: "hello.txt"})
	if !errors.Is(err, wire.OpUnconfirmed) {
		t.Fatalf("one that isn't: %v, want OP_UNCONFIRMED", err)
	}
	if n := count(r.Calls(), "FILE_DELETE"); n != 1 {
		t.Fatalf("it was sent %d times", n)
	}
	// A link that was lost while nothing was under way costs no request.
	r.Change(func() { r.Handle = nil })
	if _, err := s.Stat(ctx, "hello.txt", true); err != nil {
		t.Fatal(err)
	}
	r.Cut()
	if err := s.Delete(ctx, wire.FileDelete{Path: "hello.txt"}); err != nil && !errors.Is(err, wire.OpUnconfirmed) {
		t.Fatalf("after a quiet loss: %v", err)
	}
}

func count(list []string, s string) (n int) {
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

func TestLostSession(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	before := s.Info().ID
	r.Forget()
	if stat, err := s.Stat(t.Context(), "hello.txt", true); err != nil || !stat.Exists {
		t.Fatalf("in a session that the relay forgot: %+v, %v", stat, err)
	}
	if s.Info().ID == before {
		t.Fatal("no new session was opened")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	asked := make(chan struct{})
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TExecuteCommand {
				close(asked)
				return "", nil, nil // never an answer
			}
			return "", nil, clienttest.ErrPass
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"x"}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want context.Canceled", err)
	}
	if _, err := s.Stat(t.Context(), ".", true); err != nil {
		t.Fatalf("the link after a cancelled request: %v", err)
	}
	if calls := r.Calls(); !slices.Contains(calls, "CANCEL") { // which left before the next request
		t.Errorf("the device isn't told: %v", calls)
	}
}

func TestCloseEndsRequests(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	asked := make(chan struct{})
	r.Change(func() { r.Handle = func(wire.Envelope) (wire.Type, any, error) { close(asked); return "", nil, nil } })
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(context.Background(), wire.ExecuteCommand{Argv: []string{"x"}})
		done <- err
	}()
	<-asked
	c.Close()
	select {
	case err := <-done:
		if !errors.Is(err, wire.OpUnconfirmed) {
			t.Fatalf("%v, want OP_UNCONFIRMED", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a request outlived Close")
	}
	if _, err := s.Stat(t.Context(), ".", true); err == nil {
		t.Fatal("a closed client dialled")
	}
	c.Close()
}

// What isn't an answer to the request is an error, never taken for one.
func TestStrangeAnswers(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	for name, a := range map[string]struct {
		t       wire.Type
		payload any
	}{
		"another type":        {wire.TFileContents, wire.Raw(`{"content":"","encoding":"utf-8","size_bytes":0,"truncated":false}`)},
		"an ACK":              {wire.TAck, wire.Ack{OK: true}},
		"a payload of no use": {wire.TFileStatResponse, wire.Raw(`{"exists":"perhaps"}`)},
		"an error without":    {wire.TError, wire.Raw(`{}`)},
	} {
		r.Change(func() { r.Handle = func(wire.Envelope) (wire.Type, any, error) { return a.t, a.payload, nil } })
		if _, err := s.Stat(t.Context(), ".", true); !errors.Is(err, wire.InternalError) {
			t.Errorf("%s: %v, want INTERNAL_ERROR", name, err)
		}
	}
	r.Change(func() {
		r.Handle = func(wire.Envelope) (wire.Type, any, error) { return wire.TAck, wire.Ack{OK: false}, nil }
	})
	if err := s.Delete(t.Context(), wire.FileDelete{Path: "x"}); !errors.Is(err, wire.InternalError) {
		t.Errorf("ACK with ok false: %v", err)
	}
	r.Change(func() {
		r.Handle = func(wire.Envelope) (wire.Type, any, error) {
			return wire.TFileContents, &wire.FileContents{Content: make([]byte, 100), Encoding: wire.EncodingBase64, SizeBytes: 100}, nil
		}
	})
	if _, err := s.Read(t.Context(), "x", 0, 10); !errors.Is(err, wire.InternalError) {
		t.Errorf("more bytes than asked for: %v", err)
	}
}
