package audit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"farhand/internal/atomicfile"
	"farhand/internal/pulse"
	"farhand/wire"
)

// Defaults of Options. The first two are those of the Python shim.
const (
	DefaultMaxBytes  = 64 << 20
	DefaultMaxAge    = 30 * 24 * time.Hour
	DefaultSyncEvery = 200 * time.Millisecond
	// DefaultMaxTotal keeps a card from filling up with records: at some 400
	// bytes each it holds two and a half million of them.
	DefaultMaxTotal = 1 << 30
)

// rotateRetry spaces out rotations that fail, each of which costs a sync.
const rotateRetry = time.Minute

// KeySize is the length of the audit key in bytes.
const KeySize = 32

// ErrClosed is what a closed log answers.
var ErrClosed = errors.New("audit log is closed")

// Options says where and how to record. Zero values stand for the defaults.
type Options struct {
	Path        string // <state_dir>/audit.log; audit.head stands beside it
	Key         []byte // KeySize bytes
	MachineID   string
	ShimVersion string

	MaxBytes  int64         // a file that has reached this is rotated
	MaxAge    time.Duration // so is one whose first record is this old
	MaxTotal  int64         // bytes of rotated files that are kept; negative: all
	SyncEvery time.Duration // the longest time until a record is on its way to the disk

	Now func() time.Time // time.Now
	Log *slog.Logger     // failures of the background work
}

// Log appends records. Make it with Open.
type Log struct {
	opt Options

	mu     sync.Mutex
	f      *os.File // the current file, appending
	enc    *encoder
	seq    int64  // of the last record written
	mac    string // its hmac
	size   int64  // of the current file up to the last whole record
	first  time.Time
	torn   bool // the file may hold part of a record after size
	closed bool
	// rotateAt is when to try again after a rotation failed.
	rotateAt time.Time

	synced     wire.Anchor // the last record that is on the disk
	syncedSize int64       // and the current file's size up to it
	syncErr    error       // the last sync failed: what is after syncedSize may be lost
	round      chan struct{}

	headMu  sync.Mutex // held while sealing; taken after mu or alone
	head    *headFile
	oldest  int64 // the oldest record that must still be there
	headErr error

	failing atomic.Bool // the last record couldn't be written
	failure atomic.Pointer[error]

	dirty  chan struct{} // something was written
	urgent chan struct{} // somebody waits for the disk
	stop   chan struct{}
	done   chan struct{}
	loop   *pulse.Loop

	// The two calls that a test lets fail.
	write func(*os.File, []byte) (int, error)
	fsync func(*os.File) error
}

// Open opens the log, or starts it, and goes on after its last good record.
//
// What a crash left after that record is moved to audit.log.torn-<seq> and
// noted by an AUDIT_RECOVERED record. If records that were known to be on the
// disk are gone, the log goes on after them with an AUDIT_GAP record, which
// Verify reports for ever. Only a log in which nothing carries the seal of the
// key is refused, since that means the wrong key.
//
// Only one process may have the log open; the caller holds the lock of the state
// directory.
func Open(o Options) (*Log, error) {
	if len(o.Key) != KeySize {
		return nil, fmt.Errorf("audit log %s: the key has %d bytes, not %d", o.Path, len(o.Key), KeySize)
	}
	o.setDefaults()
	l := &Log{
		opt:    o,
		enc:    newEncoder(o.Key, o.MachineID, o.ShimVersion),
		round:  make(chan struct{}),
		dirty:  make(chan struct{}, 1),
		urgent: make(chan struct{}, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		loop:   pulse.New("the loop that puts audit records on the disk"),
		write:  (*os.File).Write,
		fsync:  datasync,
	}
	if err := l.resume(); err != nil {
		if l.f != nil {
			l.f.Close()
		}
		if l.head != nil {
			l.head.f.Close()
		}
		return nil, fmt.Errorf("audit log %s: %w", o.Path, err)
	}
	go l.syncLoop()
	return l, nil
}

func (o *Options) setDefaults() {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.MaxTotal == 0 {
		o.MaxTotal = DefaultMaxTotal
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = DefaultSyncEvery
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Append records e and returns when the kernel has it: one write. After an
// error nothing was recorded, and what e announces must not happen. The error
// carries wire.DiskFull when that is the reason, else wire.InternalError.
func (l *Log) Append(e Entry) error {
	_, err := l.append(&e)
	return err
}

// AppendSync records e and returns when it is on the disk. Callers at the same
// time share one sync. If ctx ends first, the record stands but may not be on
// the disk yet.
func (l *Log) AppendSync(ctx context.Context, e Entry) error {
	seq, err := l.append(&e)
	if err != nil {
		return err
	}
	for {
		l.mu.Lock()
		synced, failed, round := l.synced, l.syncErr, l.round
		l.mu.Unlock()
		switch {
		case synced.Seq >= seq:
			return nil
		case failed != nil:
			return l.unavailable(failed)
		}
		signal(l.urgent)
		select {
		case <-round:
		case <-l.done: // Close syncs last; look once more
			l.mu.Lock()
			synced = l.synced
			l.mu.Unlock()
			if synced.Seq >= seq {
				return nil
			}
			return l.unavailable(ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("audit record %d is not on the disk yet: %w", seq, context.Cause(ctx))
		}
	}
}

func (l *Log) append(e *Entry) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, l.unavailable(ErrClosed)
	}
	if err := l.repair(); err != nil {
		return 0, l.unavailable(err)
	}
	now := l.opt.Now()
	if l.rotationDue(now) {
		if err := l.rotate(now); err != nil {
			// The old file goes on: what counts is that records are kept.
			l.opt.Log.Warn("audit log not rotated", "path", l.opt.Path, "err", err)
			l.rotateAt = now.Add(rotateRetry)
			if err := l.repair(); err != nil {
				return 0, l.unavailable(err)
			}
		}
	}
	if err := l.put(e, now); err != nil {
		return 0, l.unavailable(err)
	}
	if l.failing.Load() && l.failing.Swap(false) {
		l.failure.Store(nil)
		l.opt.Log.Info("audit log can be written again", "path", l.opt.Path)
	}
	signal(l.dirty)
	return l.seq, nil
}

// put writes one record to the current file.
func (l *Log) put(e *Entry, now time.Time) error {
	line, mac, err := l.enc.encode(e, seconds(now), l.seq+1, l.mac)
	if err != nil {
		return err
	}
	n, err := l.write(l.f, line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err != nil {
		l.torn = true
		if broken := l.repair(); broken != nil {
			err = errors.Join(err, broken)
		}
		return err
	}
	if l.size == 0 {
		l.first = now
	}
	l.seq++
	l.mac = mac
	l.size += int64(n)
	return nil
}

// repair brings the file back to what the chain says, after a failure.
func (l *Log) repair() error {
	if l.torn {
		if err := l.f.Truncate(l.size); err != nil {
			return fmt.Errorf("cut off part of a record: %w", err)
		}
		l.torn = false
	}
	if l.syncErr != nil {
		return l.resync()
	}
	return nil
}

// resync writes again what a failed sync may have lost. The kernel reports such
// a failure once and then takes the pages for clean, so that syncing again
// alone would say that all is well.
func (l *Log) resync() error {
	unsure := make([]byte, l.size-l.syncedSize)
	if _, err := l.f.ReadAt(unsure, l.syncedSize); err != nil {
		return fmt.Errorf("read back unsynced records: %w", err)
	}
	// The log's own descriptor appends wherever one writes.
	f, err := os.OpenFile(l.opt.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(unsure, l.syncedSize); err != nil {
		return fmt.Errorf("write unsynced records again: %w", err)
	}
	if err := l.fsync(f); err != nil {
		return err
	}
	l.syncErr = nil
	l.onDisk()
	return nil
}

// unavailable is the error of an operation that can't be recorded. The first of
// a row of them is logged.
func (l *Log) unavailable(err error) error {
	if !errors.Is(err, ErrClosed) && !l.failing.Swap(true) {
		l.opt.Log.Error("audit log can't be written: requests are refused until it can", "path", l.opt.Path, "err", err)
	}
	l.failure.Store(&err)
	code, why := wire.InternalError, "the audit log can't be written"
	if atomicfile.Full(err) {
		code, why = wire.DiskFull, "the audit log can't be written: the disk is full"
	}
	return &unavailableError{
		far:   wire.Errorf(code, "%s, so nothing is done", why).With("reason", "audit_unavailable"),
		cause: err,
	}
}

// Failure is why the last record couldn't be written; nil while all is well.
func (l *Log) Failure() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// unavailableError shows the far side no paths of ours, and us the cause.
type unavailableError struct {
	far   *wire.Error
	cause error
}

func (e *unavailableError) Error() string   { return fmt.Sprintf("audit log: %v", e.cause) }
func (e *unavailableError) Unwrap() []error { return []error{e.far, e.cause} }

// Head is the newest record that is on the disk: an anchor that no power cut
// can take back. Newer records may have been appended.
func (l *Log) Head() wire.Anchor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// Size is the current file's size in bytes.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Err is nil, or why the log can't record or seal at the moment.
func (l *Log) Err() error {
	l.mu.Lock()
	err := l.syncErr
	l.mu.Unlock()
	l.headMu.Lock()
	defer l.headMu.Unlock()
	return errors.Join(err, l.headErr)
}

// Close syncs and seals what was recorded and ends the log. Later calls return
// nil.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.done
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	<-l.done
	err := l.Err()
	return errors.Join(err, l.f.Close(), l.head.f.Close())
}

// syncLoop is the log's goroutine: it syncs what was written, in groups.
func (l *Log) syncLoop() {
	defer close(l.done)
	timer := time.NewTimer(l.opt.SyncEvery)
	defer timer.Stop()
	for {
		select {
		case <-l.dirty:
			timer.Reset(l.opt.SyncEvery)
			l.gather(timer.C)
		case <-l.urgent:
		case reply := <-l.loop.Asked():
			close(reply)
			continue
		case <-l.stop:
			l.syncNow()
			return
		}
		done := l.loop.Busy(syncOverdue)
		l.syncNow()
		done()
	}
}

// gather waits until what was written is to go to the disk.
func (l *Log) gather(late <-chan time.Time) {
	for {
		select {
		case <-late:
			return
		case <-l.urgent:
			return
		case <-l.stop:
			return
		case reply := <-l.loop.Asked():
			close(reply)
		}
	}
}

// syncOverdue is when a sync has taken too long to be a slow card's.
const syncOverdue = 30 * time.Second

// Alive returns nil once the loop behind AppendSync has shown that it goes round:
// it waits for records, or it syncs and isn't late. The error says that it didn't
// until ctx ended.
func (l *Log) Alive(ctx context.Context) error { return l.loop.Alive(ctx) }

// syncNow puts all records written so far on the disk, then seals them. The
// seal is never ahead of the disk.
func (l *Log) syncNow() {
	l.mu.Lock()
	f, seq, mac, size := l.f, l.seq, l.mac, l.size
	switch {
	case l.syncErr != nil: // the next Append repairs
		l.endRound()
		l.mu.Unlock()
		return
	case seq == l.synced.Seq: // rotating or resuming did it
		l.endRound()
		l.mu.Unlock()
		l.seal(seq, mac)
		return
	}
	l.mu.Unlock()

	err := l.fsync(f)

	l.mu.Lock()
	switch {
	case l.f != f: // rotated meanwhile, and rotating syncs
	case err != nil:
		l.syncErr = err
		l.opt.Log.Error("audit log not synced", "path", l.opt.Path, "err", err)
	case seq > l.synced.Seq:
		l.synced, l.syncedSize = wire.Anchor{Seq: seq, HMAC: mac}, size
	}
	l.endRound()
	good := l.syncErr == nil
	l.mu.Unlock()
	if good {
		l.seal(seq, mac)
	}
}

// onDisk notes that everything written so far is on the disk.
func (l *Log) onDisk() {
	l.synced, l.syncedSize = wire.Anchor{Seq: l.seq, HMAC: l.mac}, l.size
}

func (l *Log) endRound() {
	close(l.round)
	l.round = make(chan struct{})
}

// seal renews the head unless it is as new already. A seal that can't be
// written is reported by Err and tried again with the next group: the records
// themselves are safe.
func (l *Log) seal(seq int64, mac string) error {
	l.headMu.Lock()
	defer l.headMu.Unlock()
	h := head{seq: seq, mac: mac, from: l.oldest}
	if h.seq < l.head.last.seq || h == l.head.last {
		return nil
	}
	err := l.head.write(h)
	if err != nil && l.headErr == nil {
		l.opt.Log.Error("audit log not sealed", "path", l.opt.Path, "err", err)
	}
	l.headErr = err
	return err
}

// sign is the HMAC in hex that a record with this canonical form has.
func sign(key, canonical []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write(canonical)
	return fmt.Sprintf("%x", m.Sum(nil))
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
