// Package serve listens on the helper's socket: who may call, how many at a
// time, and when nobody needs the helper any more.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"farhand/provision/request"
)

// Options say who is answered and for how long.
type Options struct {
	Handler request.Handler
	// Users may call, by number. Root always may.
	Users []uint32
	// Idle ends Run once no request came for so long; 0: never.
	Idle time.Duration
	// Busy, if not nil, says whether something must go on though nobody asks.
	Busy func() bool
	Log  *slog.Logger
}

// maxConnections bounds those open at once; the daemon needs one or two.
const maxConnections = 16

// connectionIdle is how long a connection may be silent.
const connectionIdle = 30 * time.Second

// Run answers on l until ctx ends or nobody needs it, and closes l. It waits for
// the requests in work.
func Run(ctx context.Context, l *net.UnixListener, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{Options: o, last: time.Now(), free: make(chan struct{}, maxConnections)}
	var work sync.WaitGroup
	work.Go(func() { s.watch(ctx, cancel) })
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			idle := ctx.Err() != nil
			cancel()
			work.Wait()
			if idle {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case s.free <- struct{}{}:
			work.Go(func() {
				defer func() { <-s.free }()
				s.answer(ctx, conn)
			})
		default:
			o.Log.Warn("a caller too many is turned away")
			_ = conn.Close()
		}
	}
}

type server struct {
	Options
	free chan struct{}

	mu   sync.Mutex
	last time.Time // of the last request
	open int
}

func (s *server) count(by int) {
	s.mu.Lock()
	s.open += by
	s.last = time.Now()
	s.mu.Unlock()
}

func (s *server) answer(ctx context.Context, conn *net.UnixConn) {
	uid, err := peer(conn)
	if err != nil || uid != 0 && !slices.Contains(s.Users, uid) {
		s.Log.Warn("a caller who may not call", "uid", uid, "error", err)
		_ = request.Refuse(conn, "only the daemon may ask") // it is gone, then
		return
	}
	s.count(1)
	defer s.count(-1)
	if err := request.Serve(ctx, conn, s.Handler, connectionIdle); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
		s.Log.Warn("request", "error", err)
	}
}

// watch ends the serving when nobody needs it.
func (s *server) watch(ctx context.Context, end context.CancelFunc) {
	if s.Idle == 0 {
		return
	}
	tick := time.NewTicker(s.Idle / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		idle := s.open == 0 && time.Since(s.last) >= s.Idle
		s.mu.Unlock()
		if idle && (s.Busy == nil || !s.Busy()) {
			end()
			return
		}
	}
}
