package pulse

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// alive asks for a second.
func alive(t *testing.T, l *Loop) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return l.Alive(ctx)
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("the loop")
		if err := alive(t, l); err == nil || !strings.Contains(err.Error(), "the loop doesn't answer") {
			t.Errorf("before it begins: %v", err)
		}
		work, quit := make(chan time.Duration), make(chan struct{})
		go func() {
			for {
				select {
				case <-quit:
					return
				case reply := <-l.Asked():
					close(reply)
				case d := <-work:
					done := l.Busy(10 * time.Second)
					<-time.After(d)
					done()
				}
			}
		}()
		for range 3 {
			if err := alive(t, l); err != nil {
				t.Errorf("while it waits: %v", err)
			}
		}
		work <- 30 * time.Second
		if err := alive(t, l); err != nil {
			t.Errorf("while it is busy: %v", err)
		}
		<-time.After(15 * time.Second)
		if err := alive(t, l); err == nil || !strings.Contains(err.Error(), "the loop is late by") {
			t.Errorf("when it is late: %v", err)
		}
		<-time.After(20 * time.Second)
		if err := alive(t, l); err != nil {
			t.Errorf("when it is back: %v", err)
		}
		close(quit)
		synctest.Wait()
		if err := alive(t, l); err == nil {
			t.Error("a loop that went away is alive")
		}
		l.End()
		if err := alive(t, l); err != nil {
			t.Errorf("one that has ended as it should: %v", err)
		}
	})
}

// A loop that becomes busy while it is asked needn't answer.
func TestBusyMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("the loop")
		time.AfterFunc(200*time.Millisecond, func() { l.Busy(time.Minute) })
		if err := alive(t, l); err != nil {
			t.Error(err)
		}
	})
}

func TestBusyWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("the loop")
		outer := l.Busy(10 * time.Second)
		l.Busy(time.Second)()
		<-time.After(5 * time.Second)
		if err := alive(t, l); err != nil {
			t.Errorf("the inner work's end ended the outer's: %v", err)
		}
		outer()
		if err := alive(t, l); err == nil {
			t.Error("busy after the end")
		}
	})
}

func TestLocked(t *testing.T) {
	var mu sync.Mutex
	passed := 0
	free := func() { mu.Lock(); passed++; mu.Unlock() }
	if err := Locked(t.Context(), "the lock", free); err != nil || passed != 1 {
		t.Error(err, passed)
	}
	mu.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Locked(ctx, "the lock", free); err == nil {
		t.Error("a lock that is held is free")
	}
	mu.Unlock()
}
