package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"farhand/internal/leak"
	"farhand/stream"
	"farhand/wire"
)

// journal makes one that a shell script writes, which gets journalctl's
// arguments.
func journal(t *testing.T, script string) Journal {
	t.Helper()
	root := tree(t, map[string]string{"var/log/journal/0123/system.journal": ""})
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Journal{Root: root, Program: "journalctl", Path: "relative:" + bin + ":/usr/bin:/bin"}
}

var alice = stream.Owner{Session: "s"}

type service struct {
	*Service
	hub *stream.Hub
}

func newService(t *testing.T, j Journal) service {
	t.Helper()
	leak.Check(t)
	hub := stream.NewHub(stream.HubOptions{})
	s := New(System{}, j, hub)
	t.Cleanup(func() {
		s.Close()
		hub.Close()
	})
	return service{s, hub}
}

func holding() func() { return func() {} }

// records receives a stream to its end, giving credit as it goes.
func (s service) records(t *testing.T, id string) (all []wire.LogRecord, lost int64, end wire.StreamEnd) {
	t.Helper()
	frames := s.receive(t, id)
	for {
		select {
		case d := <-frames:
			if d.Lost != nil {
				lost += d.Lost.To - d.Lost.From
			}
			n := 0
			for _, raw := range d.Records {
				n += len(raw)
				var rec wire.LogRecord
				if err := json.Unmarshal(raw, &rec); err != nil {
					t.Fatal(err)
				}
				all = append(all, rec)
			}
			s.hub.Credit(wire.StreamCredit{Stream: id, Bytes: n}, alice)
			if d.End != nil {
				return all, lost, *d.End
			}
		case <-time.After(time.Minute):
			t.Fatalf("no end after %d records", len(all))
		}
	}
}

func (s service) receive(t *testing.T, id string) <-chan wire.StreamData {
	o := newSink(t)
	s.hub.Begin(id, o)
	return o.frames
}

func TestLogs(t *testing.T) {
	j := journal(t, `
echo "$@" > "$(dirname "$0")/arguments"; env > "$(dirname "$0")/environment"
echo '{"__REALTIME_TIMESTAMP":"1712345678000001","MESSAGE":"hello","PRIORITY":"6","SYSLOG_IDENTIFIER":"sshd","_PID":"42","_SYSTEMD_UNIT":"ssh.service"}'
echo 'no entry'
echo '{"__REALTIME_TIMESTAMP":"1712345678000002","MESSAGE":[104,255,105],"_COMM":"x","SYSLOG_PID":"7","PRIORITY":"9"}'
echo '{"__REALTIME_TIMESTAMP":"1712345678000003","MESSAGE":null,"UNIT":"a.service","_SYSTEMD_UNIT":"init.scope","_PID":["1","2"]}'
printf '{"__REALTIME_TIMESTAMP":"5","MESSAGE":"last without its end"}'
`)
	t.Setenv("FARHAND_SECRET", "of the daemon")
	s := newService(t, j)
	lines, since, priority := 3, 1712345678.5, 4
	answer, err := s.Logs(wire.LogsRequest{Unit: "ssh@*.service", Lines: &lines, Since: &since, Priority: &priority, Follow: true}, alice, holding)
	if err != nil {
		t.Fatal(err)
	}
	got, lost, end := s.records(t, answer.Stream)
	six := 6
	want := []wire.LogRecord{
		{TimeUS: 1712345678000001, Message: "hello", Priority: &six, Identifier: "sshd", PID: 42, Unit: "ssh.service"},
		{TimeUS: 1712345678000002, Message: "h\uFFFDi", Identifier: "x", PID: 7},
		{TimeUS: 1712345678000003, Message: "(too long)", Unit: "a.service", PID: 1},
		{TimeUS: 5, Message: "last without its end"},
	}
	if d := cmp.Diff(want, got); d != "" || lost != 1 || end.Reason != stream.ReasonDone {
		t.Errorf("lost %d, end %+v\n%s", lost, end, d)
	}
	b, err := os.ReadFile(filepath.Join(j.Root, "bin/arguments"))
	if err != nil {
		t.Fatal(err)
	}
	arguments := strings.Join(strings.Fields(string(b))[4:], " ")
	if want := "--quiet --since=@1712345678.500000 --lines=3 --unit=ssh@*.service --priority=4 --follow"; arguments != want {
		t.Errorf("arguments %s, want %s", arguments, want)
	}
	if b, err = os.ReadFile(filepath.Join(j.Root, "bin/environment")); err != nil || strings.Contains(string(b), "SECRET") {
		t.Errorf("environment %s, %v", b, err)
	}
}

// Nothing of a long journal is lost to a receiver that takes its time.
func TestLogsWaitForTheReceiver(t *testing.T) {
	s := newService(t, journal(t, `
i=0; pad=$(printf '%01000d' 0)
while [ $i -lt 2000 ]; do echo "{\"__REALTIME_TIMESTAMP\":\"$i\",\"MESSAGE\":\"$pad\"}"; i=$((i+1)); done
`))
	answer, err := s.Logs(wire.LogsRequest{Credit: 32 << 10}, alice, holding)
	if err != nil {
		t.Fatal(err)
	}
	got, lost, end := s.records(t, answer.Stream)
	for i, rec := range got {
		if rec.TimeUS != int64(i) {
			t.Fatalf("record %d is %d", i, rec.TimeUS)
		}
	}
	if len(got) != 2000 || lost != 0 || end.Reason != stream.ReasonDone {
		t.Errorf("%d records, %d lost, %+v", len(got), lost, end)
	}
}

// What can't be read is said in words that help.
func TestLogsRefused(t *testing.T) {
	bad, many, never, loud := -1, wire.MaxLogLines+1, -0.5, 8
	for name, c := range map[string]struct {
		r     wire.LogsRequest
		field string
	}{
		"lines":    {wire.LogsRequest{Lines: &bad}, "lines"},
		"many":     {wire.LogsRequest{Lines: &many}, "lines"},
		"since":    {wire.LogsRequest{Since: &never}, "since"},
		"option":   {wire.LogsRequest{Unit: "--directory=/"}, "unit"},
		"space":    {wire.LogsRequest{Unit: "a b"}, "unit"},
		"newline":  {wire.LogsRequest{Unit: "a\nb"}, "unit"},
		"long":     {wire.LogsRequest{Unit: strings.Repeat("a", 300)}, "unit"},
		"priority": {wire.LogsRequest{Priority: &loud}, "priority"},
		"credit":   {wire.LogsRequest{Credit: wire.MaxPacedCredit + 1}, "credit"},
		"negative": {wire.LogsRequest{Credit: -1}, "credit"},
	} {
		s := newService(t, journal(t, "exit 0"))
		_, err := s.Logs(c.r, alice, holding)
		if !errors.Is(err, wire.InvalidArgument) || wire.AsError(err).Details["field"] != c.field {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.hub.List()) != 0 {
			t.Errorf("%s: a stream is open", name)
		}
	}
	j := journal(t, "exit 0")
	j.Path = "/nowhere:."
	if _, err := newService(t, j).Logs(wire.LogsRequest{}, alice, holding); !errors.Is(err, wire.DependencyMissing) || wire.AsError(err).Details["hint"] == nil {
		t.Errorf("without journalctl: %v", err)
	}
	j = journal(t, "exit 0")
	j.Root = t.TempDir()
	if _, err := newService(t, j).Logs(wire.LogsRequest{}, alice, holding); !errors.Is(err, wire.FeatureNotSupported) {
		t.Errorf("without a journal: %v", err)
	}
	if os.Getuid() != 0 {
		j = journal(t, "exit 0")
		if err := os.Chmod(filepath.Join(j.Root, "var/log/journal/0123/system.journal"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := newService(t, j).Logs(wire.LogsRequest{}, alice, holding); !errors.Is(err, wire.PathNotAllowed) {
			t.Errorf("not to be read: %v", err)
		}
	}
}

func TestLogsFailing(t *testing.T) {
	s := newService(t, journal(t, `echo '{"MESSAGE":"one"}'; echo "Failed to open files: Bad message" >&2; exit 1`))
	answer, err := s.Logs(wire.LogsRequest{}, alice, holding)
	if err != nil {
		t.Fatal(err)
	}
	got, _, end := s.records(t, answer.Stream)
	if end.Reason != stream.ReasonFailed || len(got) != 2 || got[1].Error != "journalctl: Failed to open files: Bad message" {
		t.Errorf("%+v %+v", got, end)
	}
}

// A stream that is closed, or a service that stops, ends the program, also one
// whose child keeps its output open.
func TestFollowingEnds(t *testing.T) {
	pidOf := func(j Journal) string { return filepath.Join(j.Root, "bin/pid") }
	for _, name := range []string{"stream", "service"} {
		j := journal(t, `sleep 600 & echo $! $$ > "$(dirname "$0")/pid.new"; mv "$(dirname "$0")/pid.new" "$(dirname "$0")/pid"; echo '{"MESSAGE":"one"}'; wait`)
		s := newService(t, j)
		released := make(chan struct{})
		answer, err := s.Logs(wire.LogsRequest{Follow: true}, alice, func() func() { return func() { close(released) } })
		if err != nil {
			t.Fatal(err)
		}
		if d := <-s.receive(t, answer.Stream); len(d.Records) != 1 {
			t.Errorf("%+v", d)
		}
		b, err := os.ReadFile(pidOf(j))
		if err != nil {
			t.Fatal(err)
		}
		var child, parent int
		fmt.Sscan(string(b), &child, &parent)
		t.Cleanup(func() {
			if p, err := os.FindProcess(child); err == nil {
				p.Kill()
			}
		})
		if name == "stream" {
			s.hub.CloseStream(answer.Stream, alice)
		} else {
			s.Close()
		}
		select {
		case <-released:
		case <-time.After(time.Minute):
			t.Fatal("still reading")
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", parent)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the program is still there: %v", name, err)
		}
		if name == "service" && s.hub.List() != nil {
			t.Error("the stream is still open")
		}
	}
}

func TestReadersAreFew(t *testing.T) {
	s := newService(t, journal(t, `exec sleep 600`))
	var last string
	for range MaxReaders {
		answer, err := s.Logs(wire.LogsRequest{Follow: true}, alice, holding)
		if err != nil {
			t.Fatal(err)
		}
		last = answer.Stream
	}
	if _, err := s.Logs(wire.LogsRequest{}, alice, holding); !errors.Is(err, wire.ShimOverloaded) {
		t.Fatal(err)
	}
	s.hub.CloseStream(last, alice)
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := s.Logs(wire.LogsRequest{}, alice, holding)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Entries that are too long are a gap, and long ones are cut.
func TestLongEntries(t *testing.T) {
	s := newService(t, journal(t, `
echo '{"MESSAGE":"before"}'
printf '{"MESSAGE":"'; head -c 2000000 /dev/zero | tr '\0' a; echo '"}'
printf '{"MESSAGE":"'; head -c 100000 /dev/zero | tr '\0' b; echo '"}'
`))
	answer, err := s.Logs(wire.LogsRequest{}, alice, holding)
	if err != nil {
		t.Fatal(err)
	}
	got, lost, _ := s.records(t, answer.Stream)
	if len(got) != 2 || lost != 1 || len(got[1].Message) != wire.MaxLogMessage || !got[1].Truncated {
		t.Errorf("%d records, %d lost", len(got), lost)
	}
	b, err := encode(wire.LogRecord{Message: strings.Repeat("\x01", wire.MaxLogMessage)})
	if err != nil || len(b) > wire.StreamDataMax {
		t.Errorf("a record of %d bytes, %v", len(b), err)
	}
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1","MESSAGE":"x","PRIORITY":"3","_PID":["1","2"]}`))
	f.Add([]byte(`{"MESSAGE":[1,2,300]}`))
	f.Add([]byte(`{"MESSAGE":[[1],[2]],"UNIT":null}`))
	f.Add([]byte(`{"MESSAGE":[]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		rec, err := parseEntry(line)
		if err != nil {
			return
		}
		if !utf8.ValidString(rec.Message) || len(rec.Message) > wire.MaxLogMessage || rec.TimeUS < 0 || rec.PID < 0 {
			t.Errorf("%q gives %+v", line, rec)
		}
		if b, err := encode(rec); err != nil || len(b) > wire.StreamDataMax {
			t.Errorf("%q is a record of %d bytes, %v", line, len(b), err)
		}
	})
}

func TestTopStream(t *testing.T) {
	s := newService(t, Journal{})
	if _, err := s.Top(t.Context(), wire.TopRequest{Interval: 0.1}, alice, holding, all); !errors.Is(err, wire.InvalidArgument) {
		t.Errorf("too often: %v", err)
	}
	one, err := s.Top(t.Context(), wire.TopRequest{}, alice, holding, all)
	if err != nil || one.Stream != "" || one.Busy == nil {
		t.Errorf("%+v, %v", one, err)
	}
	released := make(chan struct{})
	answer, err := s.Top(t.Context(), wire.TopRequest{Interval: wire.MinTopInterval}, alice, func() func() { return func() { close(released) } }, all)
	if err != nil || answer.OpenedStream() == "" {
		t.Fatal(err)
	}
	d := <-s.receive(t, answer.Stream)
	var top wire.Top
	if err := json.Unmarshal(d.Records[0], &top); err != nil || top.Time <= answer.Time {
		t.Errorf("%+v, %v", top, err)
	}
	s.hub.CloseStream(answer.Stream, alice)
	<-released
}
