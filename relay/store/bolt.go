package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var _ Store = (*Bolt)(nil)

const (
	// lockTimeout is how long OpenBolt waits for the file's lock: long enough
	// for a relay that is just going down, short enough for a person.
	lockTimeout = 2 * time.Second
	// maxBatch is how many waiting writes share one fsync.
	maxBatch = 256
	// sweepInterval is how often expired entries are removed. Readers don't see
	// them before that either; it bounds the file and the delay of Watch.
	sweepInterval = 30 * time.Second
	// maxSweep is how many expired entries one transaction removes.
	maxSweep = 1024
)

var (
	bucketEntries = []byte("entries") // key -> revision (8), expiry (8), value
	bucketExpiry  = []byte("expiry")  // expiry (8), key -> nothing
)

// Bolt is a Store in one file, for a relay on one host. Every write is fsynced
// before it returns; writes that wait at the same time share one fsync. A crash
// at any moment leaves the state before or after a write (bbolt writes its
// pages beside the old ones and switches by one checksummed meta page).
type Bolt struct {
	db      *bbolt.DB
	writes  chan *boltWrite
	closing chan struct{}  // closed first: no new calls
	stop    chan struct{}  // closed when the last handed-over write is answered
	calls   sync.WaitGroup // writes on their way
	done    sync.WaitGroup // writer, sweeper, watches

	mu       sync.Mutex
	closed   bool
	watchers map[*watcher]struct{}
}

// boltWrite is one waiting write. apply runs inside the shared transaction and
// says whether it changed anything.
type boltWrite struct {
	key   string
	apply func(entries, expiry *bbolt.Bucket) (changed bool, err error)
	err   error
	done  chan struct{}
}

// OpenBolt opens or makes the file (mode 0600). ErrLocked, wrapped, if another
// process has it.
func OpenBolt(path string) (*Bolt, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockTimeout,
		FreelistType: bbolt.FreelistMapType,
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("store %s: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, b := range [][]byte{bucketEntries, bucketExpiry} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	b := &Bolt{
		db:       db,
		writes:   make(chan *boltWrite, maxBatch),
		closing:  make(chan struct{}),
		stop:     make(chan struct{}),
		watchers: make(map[*watcher]struct{}),
	}
	b.done.Go(b.writeLoop)
	b.done.Go(b.sweepLoop)
	return b, nil
}

// Get implements Store.
func (b *Bolt) Get(ctx context.Context, key string) (Entry, error) {
	if err := b.usable(ctx, CheckKey(key)); err != nil {
		return Entry{}, err
	}
	e := Entry{}
	err := b.db.View(func(tx *bbolt.Tx) error {
		raw := tx.Bucket(bucketEntries).Get([]byte(key))
		ent, ok := decodeEntry(key, raw, time.Now())
		if !ok {
			return ErrNotFound
		}
		e = ent
		return nil
	})
	if err != nil {
		return Entry{}, b.readError("get "+key, err)
	}
	return e, nil
}

// List implements Store.
func (b *Bolt) List(ctx context.Context, prefix string) ([]Entry, error) {
	if err := b.usable(ctx, CheckPrefix(prefix)); err != nil {
		return nil, err
	}
	list := []Entry{}
	err := b.db.View(func(tx *bbolt.Tx) error {
		now, p := time.Now(), []byte(prefix)
		c := tx.Bucket(bucketEntries).Cursor()
		for k, raw := c.Seek(p); k != nil && bytes.HasPrefix(k, p); k, raw = c.Next() {
			if e, ok := decodeEntry(string(k), raw, now); ok {
				list = append(list, e)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, b.readError("list "+prefix, err)
	}
	return list, nil
}

// Create implements Store.
func (b *Bolt) Create(ctx context.Context, key string, value []byte, expires time.Time) (uint64, error) {
	return b.put(ctx, key, value, expires, func(_ Entry, there bool) error {
		if there {
			return ErrExists
		}
		return nil
	})
}

// Update implements Store.
func (b *Bolt) Update(ctx context.Context, key string, value []byte, expires time.Time, last uint64) (uint64, error) {
	return b.put(ctx, key, value, expires, func(old Entry, there bool) error {
		if !there || old.Revision != last {
			return ErrConflict
		}
		return nil
	})
}

func (b *Bolt) put(ctx context.Context, key string, value []byte, expires time.Time, allow func(Entry, bool) error) (uint64, error) {
	if err := b.usable(ctx, errors.Join(CheckKey(key), CheckValue(key, value))); err != nil {
		return 0, err
	}
	var revision uint64
	err := b.write(ctx, key, func(entries, expiry *bbolt.Bucket) (bool, error) {
		raw := entries.Get([]byte(key))
		old, there := decodeEntry(key, raw, time.Now())
		if err := allow(old, there); err != nil {
			return false, err
		}
		if err := dropExpiry(expiry, key, raw); err != nil {
			return false, err
		}
		next, err := entries.NextSequence()
		if err != nil {
			return false, err
		}
		revision = next
		if !expires.IsZero() {
			if err := expiry.Put(expiryKey(expires, key), nil); err != nil {
				return false, err
			}
		}
		return true, entries.Put([]byte(key), encodeEntry(next, expires, value))
	})
	return revision, err
}

// Delete implements Store.
func (b *Bolt) Delete(ctx context.Context, key string, last uint64) error {
	if err := b.usable(ctx, CheckKey(key)); err != nil {
		return err
	}
	return b.write(ctx, key, func(entries, expiry *bbolt.Bucket) (bool, error) {
		raw := entries.Get([]byte(key))
		old, there := decodeEntry(key, raw, time.Now())
		if last != 0 && (!there || old.Revision != last) {
			return false, ErrConflict
		}
		if raw == nil {
			return false, nil
		}
		if err := dropExpiry(expiry, key, raw); err != nil {
			return false, err
		}
		return true, entries.Delete([]byte(key))
	})
}

// Len says how many entries the file holds, expired ones that were not removed
// yet included.
func (b *Bolt) Len() (int, error) {
	n := 0
	err := b.db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket(bucketEntries).Stats().KeyN
		return nil
	})
	if err != nil {
		return 0, b.readError("count", err)
	}
	return n, nil
}

// Close implements Store.
func (b *Bolt) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	close(b.closing)
	b.mu.Unlock()
	b.calls.Wait()
	close(b.stop)
	b.done.Wait()
	if err := b.db.Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func (b *Bolt) usable(ctx context.Context, invalid error) error {
	select {
	case <-b.closing:
		return ErrClosed
	default:
	}
	if invalid != nil {
		return invalid
	}
	return ctx.Err()
}

func (b *Bolt) readError(what string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return ErrClosed
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return fmt.Errorf("store: %s: %w", what, err)
}

// write hands one change to the writer and waits for its fsync. Once handed
// over it is waited for even if ctx ends, so that the caller always learns
// whether it happened.
func (b *Bolt) write(ctx context.Context, key string, apply func(entries, expiry *bbolt.Bucket) (bool, error)) error {
	w := &boltWrite{key: key, apply: apply, done: make(chan struct{})}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	b.calls.Add(1) // Close waits for it, and the writer outlives it
	b.mu.Unlock()
	defer b.calls.Done()
	select {
	case b.writes <- w:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-w.done
	if w.err != nil {
		return fmt.Errorf("%s: %w", key, w.err)
	}
	return nil
}

func (b *Bolt) writeLoop() {
	for {
		select {
		case w := <-b.writes:
			b.commit(b.gather(w))
		case <-b.stop:
			return
		}
	}
}

// gather takes along what waits already, without waiting for more.
func (b *Bolt) gather(first *boltWrite) []*boltWrite {
	batch := []*boltWrite{first}
	for len(batch) < maxBatch {
		select {
		case w := <-b.writes:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// commit applies a batch in order in one transaction. A refused write (a
// conflict) leaves the others alone; a failure of the file fails them all.
func (b *Bolt) commit(batch []*boltWrite) {
	changed := make([]string, 0, len(batch))
	failure := func() error {
		tx, err := b.db.Begin(true)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after Commit this does nothing
		entries, expiry := tx.Bucket(bucketEntries), tx.Bucket(bucketExpiry)
		for _, w := range batch {
			did, err := w.apply(entries, expiry)
			switch {
			case err == nil, errors.Is(err, ErrConflict), errors.Is(err, ErrExists):
				w.err = err
			default:
				return err
			}
			if did {
				changed = append(changed, w.key)
			}
		}
		if len(changed) == 0 {
			return nil
		}
		return tx.Commit()
	}()
	if failure == nil {
		b.tell(changed)
	}
	for _, w := range batch {
		if failure != nil {
			w.err = fmt.Errorf("store: %w", failure)
		}
		close(w.done)
	}
}

func (b *Bolt) sweepLoop() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for b.sweep(time.Now()) == maxSweep {
			}
		case <-b.closing:
			return
		}
	}
}

// sweep removes up to maxSweep expired entries and says how many. A failure is
// left to the next round: expired entries are invisible either way.
func (b *Bolt) sweep(now time.Time) int {
	var gone []string
	err := b.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketExpiry).Cursor()
		for k, _ := c.First(); k != nil && len(gone) < maxSweep; k, _ = c.Next() {
			if at := int64(binary.BigEndian.Uint64(k)); at > now.UnixNano() {
				break
			}
			gone = append(gone, string(k[8:]))
		}
		return nil
	})
	if err != nil || len(gone) == 0 {
		return 0
	}
	var removed []string
	err = b.db.Update(func(tx *bbolt.Tx) error {
		entries, expiry := tx.Bucket(bucketEntries), tx.Bucket(bucketExpiry)
		for _, key := range gone {
			raw := entries.Get([]byte(key))
			if _, alive := decodeEntry(key, raw, now); alive || raw == nil {
				continue // renewed or deleted meanwhile; its index entry went with that
			}
			if err := dropExpiry(expiry, key, raw); err != nil {
				return err
			}
			if err := entries.Delete([]byte(key)); err != nil {
				return err
			}
			removed = append(removed, key)
		}
		return nil
	})
	if err != nil {
		return 0
	}
	b.tell(removed)
	return len(gone)
}

func encodeEntry(revision uint64, expires time.Time, value []byte) []byte {
	raw := make([]byte, 16, 16+len(value))
	binary.BigEndian.PutUint64(raw, revision)
	if !expires.IsZero() {
		binary.BigEndian.PutUint64(raw[8:], uint64(expires.UnixNano()))
	}
	return append(raw, value...)
}

// decodeEntry copies raw out of the transaction; false if it is absent,
// expired or not an entry.
func decodeEntry(key string, raw []byte, now time.Time) (Entry, bool) {
	if len(raw) < 16 {
		return Entry{}, false
	}
	e := Entry{Key: key, Revision: binary.BigEndian.Uint64(raw)}
	if at := int64(binary.BigEndian.Uint64(raw[8:])); at != 0 {
		if at <= now.UnixNano() {
			return Entry{}, false
		}
		e.Expires = time.Unix(0, at)
	}
	e.Value = bytes.Clone(raw[16:])
	return e, true
}

func expiryKey(at time.Time, key string) []byte {
	k := make([]byte, 8, 8+len(key))
	binary.BigEndian.PutUint64(k, uint64(at.UnixNano()))
	return append(k, key...)
}

// dropExpiry removes the index entry that belongs to a stored raw entry.
func dropExpiry(expiry *bbolt.Bucket, key string, raw []byte) error {
	if len(raw) < 16 {
		return nil
	}
	at := int64(binary.BigEndian.Uint64(raw[8:]))
	if at == 0 {
		return nil
	}
	return expiry.Delete(expiryKey(time.Unix(0, at), key))
}
