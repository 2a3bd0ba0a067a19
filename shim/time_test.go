package shim_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/link"
	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// The tests in this file run on fake time.

// TestStatusCadence: the first STATUS after 30 s, then every 30 s, on control
// and data sockets alike.
func TestStatusCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		start := time.Now()
		control := r.start()
		data, _ := r.data(control, "s")
		for i := 1; i <= 3; i++ {
			for _, s := range []*shimtest.Socket{control, data} {
				e := <-s.Status
				if d := time.Since(start).Round(time.Second); d != time.Duration(i)*30*time.Second {
					t.Errorf("STATUS %d after %v", i, d)
				}
				got := decodeTo[wire.Status](t, e, wire.TStatus)
				if got.InFlight != 0 || got.MaxConcurrent != 4 || got.QueueDepth != 0 || *e.PendingCapacity != 4 || got.AuditAnchor != nil {
					t.Errorf("STATUS %+v", got)
				}
				if got.AuditLogBytes == 0 || got.UptimeSeconds < 29 || got.UptimeSeconds > 91 {
					t.Errorf("STATUS %+v", got)
				}
			}
		}
	})
}

// TestAuditAnchor: where it is granted STATUS carries the head of the audit log
// as it is on the disk.
func TestAuditAnchor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		withGrants(t, r, nil)
		control := r.start()
		got := decodeTo[wire.Status](t, <-control.Status, wire.TStatus)
		if a := got.AuditAnchor; a == nil || a.Seq < 2 || len(a.HMAC) != 64 || *a != r.log.Head() {
			t.Errorf("anchor %+v, head %+v", a, r.log.Head())
		}
	})
}

// TestFacts: where they are granted, the control socket tells them at once and
// with each STATUS; a session's socket doesn't, nor a socket without the grant.
func TestFacts(t *testing.T) {
	for _, granted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newBubbleRig(t)
			r.cfg.Facts = func() *wire.MachineFacts { return &wire.MachineFacts{ClockState: "saved"} }
			hello := r.cfg.Hello
			r.cfg.Hello = func(ctx context.Context, channel wire.Channel, root string) (wire.Hello, error) {
				h, err := hello(ctx, channel, root)
				h.Capabilities = append(h.Capabilities, wire.MachineFactsCapability)
				return h, err
			}
			if granted {
				r.platform.Extensions = wire.Capabilities{wire.MachineFactsCapability}
			}
			began := time.Now()
			control := r.start()
			got := decodeTo[wire.Status](t, <-control.Status, wire.TStatus)
			if after := time.Since(began); (after < time.Second) != granted {
				t.Errorf("granted %v: the first STATUS after %s", granted, after)
			}
			if (got.Facts != nil) != granted || granted && got.Facts.ClockState != "saved" {
				t.Errorf("granted %v: STATUS %+v", granted, got)
			}
			data, _ := r.data(control, "s")
			if got := decodeTo[wire.Status](t, <-data.Status, wire.TStatus); got.Facts != nil {
				t.Errorf("a session tells %+v", got)
			}
		})
	}
}

// TestIdleSessionIsReaped after ten minutes without a request, PINGs and control
// requests notwithstanding; what is held or in flight isn't idle.
func TestIdleSessionIsReaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		idle, b := r.data(control, "idle")
		used, _ := r.data(control, "used")
		held, _ := r.data(control, "held")
		release := func() {}
		for range 3 {
			if s := <-r.opened; s.ID() == "held" {
				release = s.Hold()
			}
		}
		for range 10 {
			faketime.Advance(time.Minute)
			idle.Call(wire.TPing, nil)
			used.Call(wire.TFileStat, wire.FileStat{Path: "x"})
		}
		if code, _ := idle.Ended(); code != 1000 {
			t.Errorf("idle session ended with %d", code)
		}
		if id := <-r.closed; id != "idle" {
			t.Errorf("%s was reaped", id)
		}
		if rec := r.last("IDLE_SESSION_DETACH"); rec.SessionID != "idle" || rec.Details["idle_seconds"].(float64) < 600 {
			t.Errorf("record %+v", rec)
		}
		used.Call(wire.TPing, nil)
		held.Call(wire.TPing, nil)
		release()
		faketime.Advance(11 * time.Minute)
		held.Ended()
		// The binding was kept: the platform brings it back.
		decodeTo[wire.SessionBinding](t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "idle", RootGrant: b.RootGrant}), wire.TSessionRestored)
		r.platform.Next().Call(wire.TFileStat, wire.FileStat{Path: "x"})
	})
}

// TestRestoredIsNotIdle: a session that the platform has just asked for again
// isn't taken away before its first request.
func TestRestoredIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		data, b := r.data(control, "s")
		faketime.Advance(599 * time.Second)
		decodeTo[wire.SessionBinding](t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b.RootGrant}), wire.TSessionRestored)
		faketime.Advance(90 * time.Second) // several rounds of the reaper
		data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	})
}

// TestLongRequestIsNotIdle: a request in flight keeps its session.
func TestLongRequestIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		table := r.table()
		table[wire.TExecuteCommand] = shim.Method{Handle: func(ctx context.Context, _ *shim.Call) (any, error) {
			select {
			case <-time.After(30 * time.Minute):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return wire.CommandResult{}, nil
		}}
		r.serve(table)
		control := r.start()
		data, _ := r.data(control, "s")
		decodeTo[wire.CommandResult](t, data.Call(wire.TExecuteCommand, wire.ExecuteCommand{}), wire.TCommandResult)
		faketime.Advance(9 * time.Minute) // reaping counts from its end
		data.Call(wire.TPing, nil)
		data.Ended()
	})
}

// waits are the times between the ends of attempts and the next ones.
func waits(dials []time.Time) []time.Duration {
	var all []time.Duration
	for i := 1; i < len(dials); i++ {
		all = append(all, dials[i].Sub(dials[i-1]))
	}
	return all
}

// TestBackoff: base doubling to a minute with up to 5 s of jitter, and from the
// start again after a healthy minute.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		refuse := 12
		r.platform.Upgrade = func(*http.Request) int {
			if refuse--; refuse >= 0 {
				return 503
			}
			return 0
		}
		control := r.start()
		for i, w := range waits(r.platform.Dials()) {
			low := min(time.Minute, time.Second<<i)
			if w < low || w > low+5*time.Second {
				t.Errorf("wait %d is %v", i, w)
			}
		}
		faketime.Advance(2 * time.Minute)
		gone := time.Now()
		control.Drop()
		control = r.platform.Next()
		if w := time.Since(gone); w < time.Second || w > 6*time.Second {
			t.Errorf("after a healthy time: %v", w)
		}
		// Short connections don't count as healthy.
		for range 8 {
			control.Drop()
			control = r.platform.Next()
		}
		dials := r.platform.Dials()
		if w := dials[len(dials)-1].Sub(dials[len(dials)-2]); w < time.Minute {
			t.Errorf("the ninth short connection is followed by %v", w)
		}
	})
}

// TestCleanCloses wait the base time, however often they come.
func TestCleanCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		for _, code := range []int{1000, 1001, 1012, 1012, 1012, 1000} {
			gone := time.Now()
			control.Close(code, "")
			control = r.platform.Next()
			if w := time.Since(gone); w < time.Second || w > 6*time.Second {
				t.Errorf("%d is followed by %v", code, w)
			}
		}
	})
}

// TestRepeatedRefusals: 4400, 4403 and HTTP 403 aren't hammered.
func TestRepeatedRefusals(t *testing.T) {
	for name, set := range map[string]func(p *shimtest.Platform){
		"4400": func(p *shimtest.Platform) {
			p.Ack = func(s *shimtest.Socket, _ map[string]any) bool { s.Close(4400, "Invalid HELLO payload"); return false }
		},
		"4403": func(p *shimtest.Platform) {
			p.Ack = func(s *shimtest.Socket, _ map[string]any) bool { s.Close(4403, ""); return false }
		},
		"HTTP 403": func(p *shimtest.Platform) { p.Upgrade = func(*http.Request) int { return 403 } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubbleRig(t)
				set(r.platform)
				r.run()
				faketime.Advance(time.Hour)
				if n := len(r.platform.Dials()); n < 5 || n > 9 {
					t.Errorf("%d attempts in an hour: %v", n, waits(r.platform.Dials()))
				}
			})
		})
	}
}

// TestHourlyExpiry: an old socket that is closed with 4401 comes back at once.
func TestHourlyExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		for range 3 {
			faketime.Advance(time.Hour)
			gone := time.Now()
			control.Close(4401, "token expired")
			control = r.platform.Next()
			if w := time.Since(gone); w > 100*time.Millisecond {
				t.Errorf("4401 is followed by %v", w)
			}
		}
		if got := r.platform.Tokens(); !slices.Equal(got, []string{"token-0", "token-1", "token-2", "token-3"}) {
			t.Errorf("tokens %v", got)
		}
		// A platform that expires every new token is not hammered.
		before := len(r.platform.Dials())
		r.platform.Script(func() {
			r.platform.Ack = func(s *shimtest.Socket, _ map[string]any) bool { s.Close(4401, ""); return false }
		})
		control.Close(4401, "")
		faketime.Advance(10 * time.Minute)
		if n := len(r.platform.Dials()) - before; n > 20 {
			t.Errorf("%d attempts in ten minutes", n)
		}
	})
}

// TestHandover: shortly before the token expires an idle socket moves to the
// newer one by itself, a busy one when it is idle again, and no socket moves
// without a newer token.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		r.tokens.expiry = time.Now().Add(time.Hour)
		finish := make(chan struct{})
		table := r.table()
		table[wire.TExecuteCommand] = shim.Method{Handle: func(context.Context, *shim.Call) (any, error) {
			<-finish
			return wire.CommandResult{}, nil
		}}
		r.serve(table)
		control := r.start()
		data, _ := r.data(control, "s")
		defer (<-r.opened).Hold()() // not reaped as idle meanwhile
		faketime.Advance(59*time.Minute + 5*time.Second)
		data.Call(wire.TFileStat, wire.FileStat{Path: "x"}) // no newer token yet: still up
		id := data.Request(wire.TExecuteCommand, wire.ExecuteCommand{})
		r.tokens.mu.Lock()
		r.tokens.token, r.tokens.expiry = "renewed", time.Now().Add(time.Hour)
		r.tokens.mu.Unlock()
		if code, reason := control.Ended(); code != 1000 || reason != "token renewal" {
			t.Errorf("control ended with %d %q", code, reason)
		}
		again := r.platform.Next()
		if again.Session != "" || time.Since(start(r)) > 60*time.Minute {
			t.Errorf("socket of %q after %v", again.Session, time.Since(start(r)))
		}
		faketime.Advance(5 * time.Second)
		close(finish)
		data.Wait(id) // the busy one finished its request first
		data.Ended()
		if s := r.platform.Next(); s.Session != "s" {
			t.Errorf("socket of %q", s.Session)
		}
		if got := r.platform.Tokens()[2:]; !slices.Equal(got, []string{"renewed", "renewed"}) {
			t.Errorf("tokens %v", got)
		}
	})
}

func start(r *rig) time.Time { return r.platform.Dials()[0] }

// TestSilentPlatform: without a single byte for 30 s the socket is given up.
func TestSilentPlatform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		control.Call(wire.TPing, nil)
		from := time.Now()
		thaw := control.Freeze()
		r.awaitState(shim.Waiting)
		if d := time.Since(from); d < 20*time.Second || d > 60*time.Second {
			t.Errorf("given up after %v", d)
		}
		if rec := r.last("WS_DISCONNECTED"); rec.Details["reason"] != "loop_error: peer_silent" {
			t.Errorf("record %+v", rec)
		}
		thaw()
		r.platform.Next()
	})
}

// TestHandshakeTimeouts: a platform that never answers HELLO is given up after
// 10 s and tried again.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		mute := true
		r.platform.Ack = func(*shimtest.Socket, map[string]any) bool { mute = !mute; return mute }
		from := time.Now()
		r.run()
		r.platform.Next()
		if d := time.Since(from); d < 10*time.Second || d > 20*time.Second {
			t.Errorf("second try accepted after %v", d)
		}
	})
}

// TestWaitIsCut: Run returns at once while it waits.
func TestWaitIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		r.cfg.Dial = func(context.Context, string, string) (*link.Conn, error) { return nil, errors.New("no route") }
		r.run()
		faketime.Advance(time.Hour)
		from := time.Now()
		r.stop()
		if d := time.Since(from); d != 0 {
			t.Errorf("stopping took %v", d)
		}
		if s := r.shim.Status(); s.Phase != shim.Idle || s.LastError != "no route" {
			t.Errorf("status %+v", s)
		}
	})
}

// TestTheOthersFollow: when the platform is back, the first socket that finds out
// brings the others with it, however long they meant to wait.
func TestTheOthersFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		var down atomic.Bool
		r.platform.Upgrade = func(*http.Request) int {
			if down.Load() {
				return http.StatusServiceUnavailable
			}
			return 0
		}
		control := r.start()
		data, _ := r.data(control, "s")
		for range 10 {
			data.Call(wire.TFileStat, wire.FileStat{Path: "x"}) // not idle
			down.Store(true)
			control.Drop()
			data.Drop()
			faketime.Advance(5 * time.Minute)
			down.Store(false)
			first := r.platform.Next()
			since := time.Now()
			second := r.platform.Next()
			if d := time.Since(since); d > 0 {
				t.Errorf("the other socket is back after %v", d)
			}
			if control, data = first, second; first.Session != "" {
				control, data = second, first
			}
		}
	})
}

// TestLaneWait: what waits for its turn longer than anybody waits for the answer
// isn't begun, and what comes after it doesn't pass what still goes on.
func TestLaneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := gatedOn(newBubbleRig(t))
		control := r.start()
		data, _ := r.data(control, "s")
		ask := func(path string) string { return data.Request(wire.TFileList, wire.FileList{Path: path}) }
		first := ask("lane/0")
		<-g.started
		second := ask("lane/1")
		faketime.Advance(15 * time.Second)
		third := ask("lane/2")
		begun := time.Now()
		e := data.Wait(second)
		if d := time.Since(begun); d > 6*time.Second {
			t.Errorf("it is refused after %v", d)
		}
		if d := wantError(t, e, wire.HardwareBusy); d["reason"] != "queue" {
			t.Errorf("details %v", d)
		}
		faketime.Advance(time.Second)
		if len(g.started) != 0 {
			t.Error("a call passed one of its lane that goes on")
		}
		close(g.door("lane/0"))
		data.Wait(first)
		if got := <-g.started; got != "lane/2" {
			t.Errorf("%s was begun", got)
		}
		close(g.door("lane/2"))
		data.Wait(third)
		if g.most.Load() != 1 {
			t.Errorf("%d of one lane at once", g.most.Load())
		}
	})
}
