package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
	"farhand/stream"
	"farhand/wire"
)

// echo is a program of this process: it writes what it reads.
type echo struct {
	in, out *os.File
	exited  chan struct{}
}

func startEcho(f Files) (Program, string, error) {
	copied := func(f *os.File) *os.File {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		if err != nil {
			panic(err)
		}
		return os.NewFile(uintptr(fd), "echo")
	}
	e := &echo{copied(f.In), copied(f.Out), make(chan struct{})}
	go func() {
		defer close(e.exited)
		_, _ = io.Copy(struct{ io.Writer }{e.out}, struct{ io.Reader }{e.in}) // until it is killed, or reads the end
		e.in.Close()
		e.out.Close()
	}()
	return e, "echo", nil
}

func (e *echo) Exited() <-chan struct{} { return e.exited }
func (e *echo) Terminate()              { e.in.Close(); e.out.Close() }
func (e *echo) Reap() (int, error)      { return 0, nil }
func (e *echo) Kill(_ time.Duration) {
	e.Terminate()
	<-e.exited
}

// nobody receives and gives no credit, but for an end.
type nobody struct{ ctx context.Context }

func (nobody) Request() string                                     { return "r" }
func (n nobody) Context() context.Context                          { return n.ctx }
func (nobody) Send(context.Context, string, wire.StreamData) error { return nil }

// TestCrowd is four sessions that do everything at once to a few terminals, whose
// grants are revoked meanwhile, until the daemon stops under them: nothing hangs,
// nothing is left, and every failure is one that there is a reason for.
func TestCrowd(t *testing.T) {
	leak.Check(t)
	hub := stream.NewHub(stream.HubOptions{})
	s, err := New(Options{Hub: hub, Max: 6})
	if err != nil {
		t.Fatal(err)
	}
	var holds sync.WaitGroup // counts them: all are released
	hold := func() func() {
		holds.Add(1)
		return holds.Done
	}
	expected := func(err error) bool {
		for _, code := range []error{wire.TerminalNotFound, wire.ShimOverloaded, wire.InvalidArgument, wire.InternalError, os.ErrNotExist, os.ErrClosed} {
			if errors.Is(err, code) {
				return true
			}
		}
		return err == nil
	}
	var crowd sync.WaitGroup
	for n := range 4 {
		by := stream.Owner{Session: fmt.Sprint("s", n), Holder: "alice", Owner: "owner"}
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			typed := make(map[string]int64)
			some := func() string {
				for _, i := range s.List(by) {
					if seed.IntN(3) == 0 {
						return i.Terminal
					}
				}
				return "none"
			}
			for i := range 60 {
				var err error
				id := some()
				if n == 0 && i == 50 {
					s.Leave()
				}
				switch seed.IntN(11) {
				case 0, 1, 2:
					r := Request{TerminalOpen: wire.TerminalOpen{}, Owner: by, Cwd: "/", Hold: hold, Start: startEcho}
					if seed.IntN(2) == 0 {
						r.PTY = no()
					}
					if seed.IntN(4) == 0 {
						r.Start = func(Files) (Program, string, error) { return nil, "", os.ErrNotExist }
					}
					var o wire.TerminalOpened
					if o, err = s.Open(r); err == nil {
						hub.Begin(o.Streams.Out, nobody{t.Context()})
					}
				case 3:
					_, err = s.Attach(wire.TerminalAttach{Terminal: id, From: &wire.TerminalOffsets{}}, by)
				case 4, 5:
					in := wire.TerminalInput{Terminal: id, Writer: by.Session, Offset: typed[id], Data: []byte("hello\n")}
					var taken wire.TerminalTaken
					if taken, err = s.Input(t.Context(), in, by); err == nil {
						typed[id] = taken.Next
					}
				case 6:
					err = s.Resize(wire.TerminalResize{Terminal: id, Columns: 80 + seed.IntN(10), Rows: 24, Force: true}, by)
				case 7:
					err = s.CloseTerminal(t.Context(), id, by)
				case 8:
					s.Hold(by.Session, hold)
					s.EndSession(by.Session, stream.ReasonSessionEnded)
				case 9:
					hub.EndWhere(stream.ReasonGrantRevoked, func(i stream.Info) bool { return i.Session == by.Session })
				case 10:
					s.Discard(stream.ReasonGrantRevoked)
				}
				if !expected(err) {
					t.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	s.Close()
	if n := s.Running(); n != 0 {
		t.Errorf("%d run", n)
	}
	hub.Close()
	holds.Wait()
}
