package shim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/link"
	"farhand/shim"
	"farhand/wire"
)

// alive asks for a second.
func (r *rig) alive() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	return r.shim.Alive(ctx)
}

// Field case 58: connected, waiting for the network and dialling are alive.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		r.data(control, "session-1")
		for range 3 {
			if err := r.alive(); err != nil {
				t.Errorf("connected: %v", err)
			}
			faketime.Advance(time.Minute)
			control.Call(wire.TPing, nil)
		}
		r.stop()
		if err := r.alive(); err != nil {
			t.Errorf("stopped: %v", err)
		}
	})
}

func TestAliveWithoutNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		r.cfg.Dial = func(context.Context, string, string) (*link.Conn, error) {
			<-time.After(30 * time.Second)
			return nil, errors.New("no route")
		}
		r.run()
		for range 20 {
			faketime.Advance(7 * time.Second)
			if err := r.alive(); err != nil {
				t.Errorf("while %s: %v", r.shim.Status().Phase, err)
			}
		}
		r.stop()
	})
}

// A connection that is never made and never fails is a hang.
func TestADialThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		release := make(chan struct{})
		r.cfg.Dial = func(context.Context, string, string) (*link.Conn, error) {
			<-release
			return nil, errors.New("given up")
		}
		r.run()
		faketime.Advance(time.Minute)
		if err := r.alive(); err != nil {
			t.Errorf("after a minute: %v", err)
		}
		faketime.Advance(5 * time.Minute)
		if err := r.alive(); err == nil || !strings.Contains(err.Error(), "keeps a connection is late") {
			t.Errorf("after six minutes: %v", err)
		}
		close(release)
		r.stop()
	})
}

// So is one whose loop doesn't come back from telling its state.
func TestAListenerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		release := make(chan struct{})
		r.cfg.Dial = func(context.Context, string, string) (*link.Conn, error) { return nil, errors.New("no route") }
		r.cfg.OnState = func(s shim.Status) {
			if s.Phase == shim.Waiting {
				<-release
			}
		}
		r.run()
		faketime.Advance(time.Second)
		if err := r.alive(); err == nil || !strings.Contains(err.Error(), "doesn't answer") {
			t.Errorf("%v", err)
		}
		close(release)
		r.stop()
	})
}
