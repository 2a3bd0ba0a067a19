package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

// tunnel is one LOCALPORT:HOST:PORT of the command line.
type tunnel struct {
	local int // 0: any that is free
	host  string
	port  int
}

// target is what it leads to.
func (t tunnel) target() string { return net.JoinHostPort(t.host, strconv.Itoa(t.port)) }

// parseTunnel reads LOCALPORT:HOST:PORT, or HOST:PORT where both ports are the
// same. An IPv6 address stands in brackets.
func parseTunnel(arg string) (tunnel, bool) {
	var t tunnel
	rest := arg
	if first, more, ok := strings.Cut(arg, ":"); ok {
		if n, err := strconv.ParseUint(first, 10, 16); err == nil {
			t.local, rest = int(n), more
		} else {
			t.local = -1
		}
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil || host == "" {
		return tunnel{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return tunnel{}, false
	}
	t.host, t.port = host, int(n)
	if t.local < 0 {
		t.local = t.port
	}
	return t, true
}

func (a *app) forward() *cobra.Command {
	var bind string
	cmd := &cobra.Command{
		Use:   "forward [MACHINE] [LOCALPORT:]HOST:PORT...",
		Short: "Reach a TCP port that a machine can reach",
		Long: `forward listens on ports of this computer and carries each connection to a host and
port that the machine connects to: itself (127.0.0.1), or something in its network. The
machine's own configuration (forward.allow) names what may be reached, and the owner
allows the capability forward.

LOCALPORT is the port here, 0 for any that is free, and PORT if it is left out. Only
this computer can connect, unless --bind names another address. It goes on until Ctrl-C.`,
		Example: `  farhand forward pi 8080:127.0.0.1:80
  farhand forward pi 8080:127.0.0.1:80 5432:db.local:5432
  farhand forward 0:[::1]:22 --json`,
		Args: between(1, 64, "[MACHINE] and one or more of [LOCALPORT:]HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine := ""
			if _, ok := parseTunnel(args[0]); !ok {
				machine, args = args[0], args[1:]
			}
			tunnels := make([]tunnel, len(args))
			for i, arg := range args {
				var ok bool
				if tunnels[i], ok = parseTunnel(arg); !ok {
					return usage("%q is not [LOCALPORT:]HOST:PORT, such as 8080:127.0.0.1:80", arg)
				}
			}
			if len(tunnels) == 0 {
				return usage("forward where to? Give [LOCALPORT:]HOST:PORT, such as 8080:127.0.0.1:80")
			}
			return a.runForward(cmd.Context(), machine, bind, tunnels)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringVar(&bind, "bind", "127.0.0.1", "listen on this `ADDRESS`: others than 127.0.0.1 and ::1 let other computers connect")
	return cmd
}

func (a *app) runForward(ctx context.Context, machine, bind string, tunnels []tunnel) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := a.at(ctx, c, machine)
	if err != nil {
		return err
	}
	if err := s.MayDial(ctx); err != nil {
		return err
	}
	f := forwarding{a: a, session: s}
	defer f.all.Wait()
	defer cancel()
	failed := make(chan error, len(tunnels))
	for _, t := range tunnels {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(bind, strconv.Itoa(t.local)))
		if err != nil {
			return wire.Errorf(wire.InvalidArgument, "can't listen here: %v", err).With("hint", "another LOCALPORT, or 0 for any that is free")
		}
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		defer l.Close()
		if err := f.announce(l.Addr(), t); err != nil {
			return err
		}
		f.all.Go(func() { failed <- f.accept(ctx, l, t) })
	}
	select {
	case <-ctx.Done():
		a.belowInterrupt(ctx)
		return nil
	case err := <-failed:
		return err
	}
}

// forwarding carries connections.
type forwarding struct {
	a       *app
	session *client.Session
	all     sync.WaitGroup
	said    sync.Mutex // one line at a time
}

func (f *forwarding) announce(at net.Addr, t tunnel) error {
	f.said.Lock()
	defer f.said.Unlock()
	if f.a.json {
		return f.a.line(map[string]any{"listening": map[string]string{"local": at.String(), "target": t.target()}})
	}
	f.a.tell("%s leads to %s", at, clean(t.target()))
	return f.a.outErr
}

// tell says that a connection came to nothing.
func (f *forwarding) tell(t tunnel, err error) {
	f.said.Lock()
	defer f.said.Unlock()
	if !f.a.json {
		f.a.note("A connection to %s: %s", clean(t.target()), clean(err.Error()))
		if hint := f.a.hint(wire.CodeOf(err), wire.AsError(err).Details); hint != "" {
			f.a.note("  %s", clean(hint))
		}
		return
	}
	_ = f.a.line(map[string]any{"failed": map[string]any{"target": t.target(), "code": wire.CodeOf(err), "message": err.Error()}})
}

// accept takes connections until ctx ends.
func (f *forwarding) accept(ctx context.Context, l net.Listener, t tunnel) error {
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return wire.Errorf(wire.InternalError, "no more connections are taken here: %v", err)
		}
		f.all.Go(func() {
			if err := f.carry(ctx, conn.(*net.TCPConn), t); err != nil && ctx.Err() == nil {
				f.tell(t, err)
			}
		})
	}
}

// carry carries one connection. Its failure is told to the program here by a
// reset.
func (f *forwarding) carry(ctx context.Context, conn *net.TCPConn, t tunnel) error {
	defer conn.Close()
	far, err := f.session.Dial(ctx, t.host, t.port)
	if err != nil {
		_ = conn.SetLinger(0)
		return err
	}
	defer far.Close()
	// Both: who writes to a target that takes nothing doesn't hear of conn's end.
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		_ = far.Close()
	})
	defer stop()
	there := make(chan error, 1)
	go func() {
		_, err := io.Copy(far, onlyReader{conn})
		if err == nil {
			err = far.CloseWrite()
		}
		if err != nil {
			_ = far.Close() // what comes back has nobody to go to
		}
		there <- err
	}()
	_, err = io.Copy(conn, onlyReader{far})
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		_ = conn.SetLinger(0)
		conn.Close()
		_ = far.Close()
	}
	sent := <-there
	if err = errors.Join(sent, err); err != nil {
		_ = conn.SetLinger(0)
	}
	if wire.CodeOf(err) == wire.InternalError { // broken off by one of the two: their business
		return nil
	}
	return err
}

// onlyReader hides what would let io.Copy go round it.
type onlyReader struct{ io.Reader }
