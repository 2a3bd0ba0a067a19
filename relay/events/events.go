// Package events keeps what happened lately to an owner's machines, so that
// somebody who follows it over a connection that breaks misses nothing, or is told
// so. A relay on its own has it in memory alone and starts anew with none of it;
// several instances share it (package natsfeed).
package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"farhand/wire"
)

// Type says what happened.
type Type string

// The types. Those from MachinePaired on are for the owner's own login alone.
const (
	MachineOnline  Type = "machine_online"
	MachineOffline Type = "machine_offline"
	MachineRemoved Type = "machine_removed"
	GrantsChanged  Type = "grants_changed" // of a machine
	DeviceAdded    Type = "device_added"
	DeviceRemoved  Type = "device_removed"
	DeviceChanged  Type = "device_changed" // available or not

	MachinePaired Type = "machine_paired"
	MachineDenied Type = "machine_denied"
	AccessRevoked Type = "access_revoked" // the tokens of a machine
	TokenCreated  Type = "token_created"
	TokenRevoked  Type = "token_revoked"
	ClaimCreated  Type = "claim_created"
	ClaimUsed     Type = "claim_used"
	ClaimRevoked  Type = "claim_revoked"
	ClientAllowed Type = "client_allowed" // by OAuth consent
	Login         Type = "login"
	LoginRefused  Type = "login_refused"
	AuditDiffers  Type = "audit_anchor_differs" // what a machine says of its record isn't what it said before
)

// Event is one thing that happened. It never carries a secret.
type Event struct {
	Cursor  string               `json:"cursor"`
	Time    time.Time            `json:"time"`
	Type    Type                 `json:"type"`
	Machine string               `json:"machine_id,omitempty"`
	Name    string               `json:"machine_name,omitempty"`
	Device  *wire.HardwareDevice `json:"device,omitempty"`
	Holder  string               `json:"holder,omitempty"`  // the login or token that did it
	Subject string               `json:"subject,omitempty"` // the token, claim or account that it is about
	Address string               `json:"address,omitempty"` // where it came from
	Reason  string               `json:"reason,omitempty"`
	// Gap, in an event that has no type, says that others are missing here.
	Gap Gap `json:"gap,omitempty"`
	// Still, if set, is asked in the moment in which the event is published, which
	// may be long after it happened: false if it is no longer true, and then it is
	// not told. A Feed whose events wait for nothing doesn't ask.
	Still func(context.Context) bool `json:"-"`
}

// Kept is how many events of an owner there are at most.
const Kept = 1024

// Feed has the events of all owners. Its methods are safe for concurrent use and
// wait for nothing.
type Feed interface {
	// Publish adds an event to an owner's, with its cursor and, if it has none, the
	// time.
	Publish(owner string, e Event)
	// Since are an owner's events after a cursor, or all that are kept if it is
	// empty; next is where the following ones begin, and wake is closed when there
	// are some. gap says what is missing before the first; in the middle an event
	// that has nothing else does. What is no cursor of this relay is
	// INVALID_ARGUMENT.
	Since(owner, cursor string) (list []Event, next string, gap Gap, wake <-chan struct{}, err error)
}

// Memory is the Feed of a relay on its own.
type Memory struct {
	life string // tells this process' cursors from those of others

	mu     sync.Mutex
	owners map[string]*ring
}

// ring has the newest events of an owner.
type ring struct {
	events []Event       // the oldest at n%Kept once there are as many
	n      int64         // how many there ever were; the last one's number
	wake   chan struct{} // closed and replaced with each event
}

// New makes an empty feed.
func New() *Memory {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return &Memory{life: hex.EncodeToString(b[:]), owners: make(map[string]*ring)}
}

// owner is the ring of an owner. Called with mu.
func (f *Memory) owner(id string) *ring {
	r := f.owners[id]
	if r == nil {
		r = &ring{wake: make(chan struct{})}
		f.owners[id] = r
	}
	return r
}

// Publish implements Feed.
func (f *Memory) Publish(owner string, e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.owner(owner)
	r.n++
	e.Cursor, e.Still = f.cursor(r.n), nil
	if len(r.events) < Kept {
		r.events = append(r.events, e)
	} else {
		r.events[(r.n-1)%Kept] = e
	}
	close(r.wake)
	r.wake = make(chan struct{})
}

// Forget drops all that is kept of an owner.
func (f *Memory) Forget(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owners, owner)
}

func (f *Memory) cursor(n int64) string { return f.life + "." + strconv.FormatInt(n, 10) }

// Gap says why events between a cursor and the first one that is kept are missing.
type Gap string

// The gaps.
const (
	Restarted   Gap = "relay_restarted" // the cursor is another relay's, or of one that was started anew: what it had is gone
	TooOld      Gap = "too_old"         // more happened since than is kept
	NotRecorded Gap = "not_recorded"    // an instance of the relay was cut off from the others for too long
)

// Since implements Feed. A cursor of this process that it never gave out is none.
func (f *Memory) Since(owner, cursor string) (list []Event, next string, gap Gap, wake <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.owner(owner)
	oldest := max(1, r.n-Kept+1) // number of the oldest that is kept
	from := oldest
	if cursor != "" {
		life, seen, ok := ParseCursor(cursor)
		switch {
		case !ok || life == f.life && seen > r.n:
			return nil, "", "", nil, NoCursor()
		case life != f.life:
			gap = Restarted
		case seen+1 < oldest:
			gap = TooOld
		default:
			from = seen + 1
		}
	}
	for n := from; n <= r.n; n++ {
		list = append(list, r.events[(n-1)%Kept])
	}
	return list, f.cursor(r.n), gap, r.wake, nil
}

// NoCursor is the error about what is no cursor.
func NoCursor() error {
	return wire.Errorf(wire.InvalidArgument, "after is no cursor of this relay").With("field", "after")
}

// ParseCursor takes a cursor apart: what kept the event, and its number there.
func ParseCursor(cursor string) (life string, n int64, ok bool) {
	life, number, ok := strings.Cut(cursor, ".")
	if !ok || len(life) != 12 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return life, n, err == nil && n >= 0
}
