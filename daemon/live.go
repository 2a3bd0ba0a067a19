package daemon

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"farhand/device"
)

// live knows the data sessions that there are, and keeps those from being reaped
// as idle that hold a device.
type live struct {
	mu       sync.Mutex
	sessions map[string]holder
	release  map[holdKey]func()
}

// holder is what live needs of a *shim.Session.
type holder interface {
	Hold() (release func())
	LastFrame() time.Time
	openFile(ctx context.Context, path string) (io.ReadCloser, int64, error)
}

var _ holder = (*session)(nil)

type holdKey struct {
	session string
	device  device.Key
}

func (l *live) add(id string, s holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions, l.release = make(map[string]holder), make(map[holdKey]func())
	}
	l.sessions[id] = s
}

// remove forgets a session. s tells it from a newer one with the same id.
func (l *live) remove(id string, s holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[id] == s {
		delete(l.sessions, id)
	}
}

// find is the session with this id.
func (l *live) find(id string) (holder, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sessions[id]; s != nil {
		return s, nil
	}
	return nil, errors.New("the session has ended")
}

// lastFrame is when the session was last heard of; long ago if it is gone.
func (l *live) lastFrame(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sessions[id]; s != nil {
		return s.LastFrame()
	}
	return time.Time{}
}

// held is told by the leases when a session keeps a device.
func (l *live) held(i device.LeaseInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := holdKey{i.Holder.Session, i.Key}
	if s := l.sessions[key.session]; s != nil && l.release[key] == nil {
		l.release[key] = s.Hold()
	}
}

// ended is told by the leases when it has given the device back.
func (l *live) ended(i device.LeaseInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := holdKey{i.Holder.Session, i.Key}
	if release := l.release[key]; release != nil {
		release()
		delete(l.release, key)
	}
}
