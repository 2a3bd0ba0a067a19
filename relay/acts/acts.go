// Package acts keeps what each owner's logins and tokens asked of the relay: one
// tamper-evident log (package audit) an owner, so that each can read and verify
// its own and nobody another's. A record says who, by which login or token, on
// which machine, what kind of request, and how it ended; never what was in it.
//
// What changes something is recorded before it is passed on (details.phase is
// "intent") and again with how it ended; what only reads, once, with how it
// ended. What an owner's hands do while a terminal is open is one act, its
// opening: the keystrokes aren't recorded, nor are the pieces of what is written in
// a transfer, keepalives and credit.
package acts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"farhand/audit"
	"farhand/internal/version"
	"farhand/wire"
)

const (
	// name stands for the relay where a device's log has its machine id.
	name = "farhand-relay"
	// maxBytes and maxTotal bound one owner's log: some 600 000 records.
	maxBytes = 32 << 20
	maxTotal = 256 << 20
	// maxOpen is how many logs are open at a time; what wasn't written for longest
	// is closed.
	maxOpen = 64
	// maxNoted is how many records may wait that nothing waits for.
	maxNoted = 4096
	// noteEvery is how long they wait.
	noteEvery = 100 * time.Millisecond
	// MaxTail is how many records are read at once.
	MaxTail = 1000
)

// ErrNoOwner says that the id isn't one.
var ErrNoOwner = errors.New("no owner id")

// owners are made by relay/oauth; whatever else comes makes no path.
var ownerPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Act is one record.
type Act struct {
	Owner   string
	Holder  string    // the login or token
	Machine string    // its id, if one is concerned
	Session string    // if it is a session's
	Op      string    // the type of the request, or one of relay/oauth's events
	Intent  bool      // before the effect: the outcome has a record of its own
	Code    wire.Code // of the error that it ended with; empty: it was done
	Took    time.Duration
	More    []audit.Field
}

// Book is the logs of all owners. Safe for concurrent use.
type Book struct {
	dir string
	key []byte
	log *slog.Logger

	notes sync.Mutex
	noted []Act
	stop  chan struct{}
	once  sync.Once
	done  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[string]*ledger
}

type ledger struct {
	*audit.Log
	users int // appends under way
	used  time.Time
}

// Open makes a Book in a directory, with the key of the relay's own log. One
// relay at a time may have it.
func Open(dir string, key []byte, log *slog.Logger) *Book {
	b := &Book{dir: dir, key: key, log: log, stop: make(chan struct{}), open: make(map[string]*ledger)}
	b.done.Go(b.write)
	return b
}

// write writes what was noted, a lot at a time: waking somebody for each would
// cost those who note more than writing does.
func (b *Book) write() {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.flush()
		case <-b.stop:
			b.flush()
			return
		}
	}
}

func (b *Book) flush() {
	b.notes.Lock()
	noted := b.noted
	b.noted = nil
	b.notes.Unlock()
	for _, a := range noted {
		b.append(a)
	}
}

func (b *Book) append(a Act) {
	if err := b.Append(a); err != nil {
		b.log.Error("an act not recorded", "op", a.Op, "owner", a.Owner, "err", err.Error())
	}
}

// Note records an act within noteEvery: how something ended, which nothing has to
// wait for. If the process is killed the newest are lost; where too many wait, the
// caller writes its own.
func (b *Book) Note(a Act) {
	b.notes.Lock()
	full := len(b.noted) >= maxNoted
	if !full {
		b.noted = append(b.noted, a)
	}
	b.notes.Unlock()
	if full {
		b.append(a)
	}
}

func (b *Book) path(owner string) (string, error) {
	if !ownerPattern.MatchString(owner) {
		return "", fmt.Errorf("%.64q: %w", owner, ErrNoOwner)
	}
	return filepath.Join(b.dir, owner, "audit.log"), nil
}

// Append records an act. What can't be recorded must not happen.
func (b *Book) Append(a Act) error {
	l, err := b.take(a.Owner)
	if err != nil {
		return err
	}
	defer b.give(l)
	details := make([]audit.Field, 0, 6+len(a.More))
	for _, f := range []struct{ key, value string }{{"holder", a.Holder}, {"machine_id", a.Machine}} {
		if f.value != "" {
			details = append(details, audit.String(f.key, f.value))
		}
	}
	if a.Intent {
		details = append(details, audit.String("phase", audit.PhaseIntent))
	}
	return l.Append(audit.Entry{Op: a.Op, SessionID: a.Session, Details: append(details, a.More...),
		Result: audit.Result{OK: a.Code == "", ErrorCode: a.Code, Duration: a.Took}})
}

// take finds or opens an owner's log, which stays open until it is given back.
func (b *Book) take(owner string) (*ledger, error) {
	path, err := b.path(owner)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, audit.ErrClosed
	}
	l := b.open[owner]
	if l == nil {
		if len(b.open) >= maxOpen {
			b.shut()
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("acts: %w", err)
		}
		log, err := audit.Open(audit.Options{Path: path, Key: b.key, MachineID: name, ShimVersion: version.String(),
			MaxBytes: maxBytes, MaxTotal: maxTotal, Log: b.log})
		if err != nil {
			return nil, fmt.Errorf("acts: %w", err)
		}
		l = &ledger{Log: log}
		b.open[owner] = l
	}
	l.users++
	l.used = time.Now()
	return l, nil
}

func (b *Book) give(l *ledger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.users--
}

// shut closes the log that wasn't written for longest. Called with the lock held.
func (b *Book) shut() {
	var oldest string
	for owner, l := range b.open {
		if l.users == 0 && (oldest == "" || l.used.Before(b.open[oldest].used)) {
			oldest = owner
		}
	}
	if l := b.open[oldest]; l != nil {
		delete(b.open, oldest)
		if err := l.Close(); err != nil {
			b.log.Error("acts: a log not closed", "owner", oldest, "err", err.Error())
		}
	}
}

// Tail is an owner's last n records, oldest first, at most MaxTail.
func (b *Book) Tail(owner string, n int) ([]json.RawMessage, error) {
	path, err := b.path(owner)
	if err != nil {
		return nil, err
	}
	records, err := audit.Tail(path, min(n, MaxTail))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return records, err
}

// Verify checks an owner's log.
func (b *Book) Verify(ctx context.Context, owner string) (audit.Report, error) {
	path, err := b.path(owner)
	if err != nil {
		return audit.Report{}, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return audit.Report{OK: true}, nil
	}
	return audit.Verify(ctx, path, b.key)
}

// Close writes what was noted and closes every log. It may be called twice.
func (b *Book) Close() error {
	b.once.Do(func() { close(b.stop) })
	b.done.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	var errs []error
	for owner, l := range b.open {
		errs = append(errs, l.Close())
		delete(b.open, owner)
	}
	return errors.Join(errs...)
}
