package grant

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"farhand/internal/atomicfile"
	"farhand/internal/sorted"
	"farhand/wire"
)

// What is remembered, and where. The bound of bindings is the Python shim's.
const (
	fileName    = "grants.log"
	maxBindings = 64   // sessions whose binding is known
	maxSessions = 4096 // sessions whose highest revision is known
)

// Options says where and for whom bindings are kept.
type Options struct {
	Dir       string // the state directory; the file in it is grants.log
	Key       []byte // the audit key
	MachineID string
	// Forbidden says why a canonical directory may not be a root; nil allows all.
	Forbidden func(path string) error
	Now       func() time.Time // time.Now
	Log       *slog.Logger
}

// Store knows which session is bound to which directory, and the highest
// revision that every session ever had. It is safe for concurrent use, and what
// it answered survives kill -9 and power cuts.
type Store struct {
	opt    Options
	signer *Signer

	mu       sync.Mutex
	sessions map[string]*session
	clock    uint64 // counts uses, for forgetting the least used
	journal  *journal
}

// session is what is known of one session.
type session struct {
	revision int
	binding  *wire.SessionBinding // of that revision; nil if forgotten
	detached bool                 // the binding is to be restored before it is used
	used     uint64
}

// Open opens the store, or starts it. Only one process may have it open.
func Open(o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Forbidden == nil {
		o.Forbidden = func(string) error { return nil }
	}
	s := &Store{opt: o, signer: NewSigner(o.Key), sessions: make(map[string]*session)}
	j, err := openJournal(filepath.Join(o.Dir, fileName), s.apply, o.Log)
	if err != nil {
		return nil, fmt.Errorf("root grants in %s: %w", o.Dir, err)
	}
	s.journal = j
	s.forget()
	return s, nil
}

// Close syncs and closes the file; no binding can be made after it. It may be
// called again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.close()
}

// Attach binds a session to a directory with the next revision (1 for a session
// never seen) and a new grant, which makes every older grant of the session
// worthless. The directory has to be one that Inspect takes and Options.Forbidden
// allows, else DIRECTORY_UNAVAILABLE. It is on the disk when Attach returns.
func (s *Store) Attach(id, root string) (wire.SessionBinding, error) {
	if id == "" || len(id) > wire.MaxSessionID || !utf8.ValidString(id) {
		return wire.SessionBinding{}, wire.Errorf(wire.InternalError, "not a session id").With("reason", "invalid_session_id")
	}
	dir, err := Inspect(root)
	if err != nil {
		return wire.SessionBinding{}, err
	}
	if err := s.opt.Forbidden(dir.Path); err != nil {
		return wire.SessionBinding{}, fmt.Errorf("%w: %w", unavailable(root, "it may not be a root"), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Claims{
		AllowedRoot: dir.Path,
		Fingerprint: dir.Fingerprints[0],
		IssuedAt:    float64(s.opt.Now().UnixMicro()) / 1e6,
		MachineID:   s.opt.MachineID,
		Revision:    1,
		SessionID:   id,
	}
	if known := s.sessions[id]; known != nil {
		c.Revision = known.revision + 1
	}
	b := c.binding(s.signer.Sign(c))
	if err := s.keep(b); err != nil {
		return wire.SessionBinding{}, err
	}
	return b, nil
}

func (c Claims) binding(grant string) wire.SessionBinding {
	return wire.SessionBinding{
		SessionID: c.SessionID, AllowedRoot: c.AllowedRoot, Fingerprint: c.Fingerprint, Revision: c.Revision, RootGrant: grant,
	}
}

// Restore checks a grant (our signature, this session, this machine, the
// directory still the same one) and binds the session as the grant says; the
// binding carries the very grant given. Errors: ROOT_GRANT_INVALID, or
// SESSION_REVISION_MISMATCH with details.current_revision if the session was
// attached anew since. Restoring what is known already writes nothing durable.
func (s *Store) Restore(id, grant string) (wire.SessionBinding, error) {
	c, err := s.verify(id, grant)
	if err != nil {
		return wire.SessionBinding{}, err
	}
	b := c.binding(grant)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[id]
	if known != nil && known.conflicts(b) {
		return wire.SessionBinding{}, mismatch(known.revision)
	}
	if known == nil || known.binding == nil || known.revision != b.Revision || known.binding.RootGrant != grant {
		return b, s.keep(b)
	}
	s.touch(known)
	if known.detached {
		known.detached = false
		s.note(id, known)
	}
	return b, nil
}

// conflicts says whether the session has moved on from what b says.
func (k *session) conflicts(b wire.SessionBinding) bool {
	if b.Revision != k.revision {
		return b.Revision < k.revision
	}
	return k.binding != nil && (k.binding.Fingerprint != b.Fingerprint || k.binding.AllowedRoot != b.AllowedRoot)
}

func mismatch(current int) *wire.Error {
	return wire.Errorf(wire.SessionRevisionMismatch, "the session's root has revision %d by now", current).
		With("current_revision", current)
}

// Activate is the binding of an attached session at this revision, checked
// against the file system once more. Errors: SESSION_NOT_ATTACHED,
// SESSION_REVISION_MISMATCH with details.current_revision, ROOT_GRANT_INVALID.
func (s *Store) Activate(id string, revision int) (wire.SessionBinding, error) {
	b, ok := s.Lookup(id)
	if !ok {
		return b, wire.Errorf(wire.SessionNotAttached, "the session has no root attached")
	}
	if b.Revision != revision {
		return wire.SessionBinding{}, mismatch(b.Revision)
	}
	if _, err := s.verify(id, b.RootGrant); err != nil {
		return wire.SessionBinding{}, err
	}
	return b, nil
}

// Lookup is the binding of a session that was attached or restored and not
// detached since. It doesn't look at the file system.
func (s *Store) Lookup(id string) (wire.SessionBinding, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[id]
	if known == nil || known.binding == nil || known.detached {
		return wire.SessionBinding{}, false
	}
	s.touch(known)
	return *known.binding, true
}

// Detach ends a binding until it is restored with its own grant. The revision is
// kept. An unknown session is no error.
func (s *Store) Detach(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[id]; known != nil && known.binding != nil && !known.detached {
		known.detached = true
		s.note(id, known)
	}
	return nil
}

// verify checks a grant against everything but the revisions known.
func (s *Store) verify(id, grant string) (Claims, error) {
	c, err := s.signer.Verify(grant)
	if err != nil {
		return c, err
	}
	switch {
	case c.SessionID != id:
		return c, invalid("it is another session's")
	case c.MachineID != s.opt.MachineID:
		return c, invalid("it is another machine's")
	}
	dir, err := Inspect(c.AllowedRoot)
	if err != nil {
		return c, fmt.Errorf("%w: %w", invalid("its directory is not available"), err)
	}
	if !slices.Contains(dir.Fingerprints, c.Fingerprint) {
		return c, invalid("its directory was replaced")
	}
	if err := s.opt.Forbidden(dir.Path); err != nil {
		return c, fmt.Errorf("%w: %w", invalid("its directory may not be a root any more"), err)
	}
	return c, nil
}

// keep makes b the session's binding, on the disk first.
func (s *Store) keep(b wire.SessionBinding) error {
	if err := s.journal.append(line{Binding: b}, true); err != nil {
		return notKept(err)
	}
	s.apply(line{Binding: b})
	s.forget()
	s.compact()
	return nil
}

// note writes down a change that may get lost in a power cut.
func (s *Store) note(id string, k *session) {
	l := line{Binding: wire.SessionBinding{SessionID: id, Revision: k.revision}, Detached: k.detached}
	if err := s.journal.append(l, false); err != nil {
		s.opt.Log.Warn("root grants: a change was not written down", "dir", s.opt.Dir, "err", err)
		return
	}
	s.compact()
}

func notKept(err error) error {
	code := wire.InternalError
	if atomicfile.Full(err) {
		code = wire.DiskFull
	}
	return fmt.Errorf("%w: %w", wire.Errorf(code, "the binding can't be stored, so it was not made"), err)
}

// apply brings what is known up to what a line says.
func (s *Store) apply(l line) {
	b := l.Binding
	k := s.sessions[b.SessionID]
	switch {
	case k == nil:
		k = &session{}
		s.sessions[b.SessionID] = k
	case b.Revision < k.revision:
		return
	}
	if b.Revision > k.revision {
		k.revision, k.binding = b.Revision, nil
	}
	if b.RootGrant != "" {
		k.binding = &b
	}
	k.detached = l.Detached
	s.touch(k)
}

func (s *Store) touch(k *session) {
	s.clock++
	k.used = s.clock
}

// forget keeps to the bounds: the least used bindings go first, then the least
// used sessions.
func (s *Store) forget() {
	if len(s.sessions) <= maxBindings {
		return
	}
	ids := s.byUse()
	bound := 0
	for _, id := range slices.Backward(ids) {
		k := s.sessions[id]
		if k.binding == nil {
			continue
		}
		if bound++; bound > maxBindings {
			k.binding = nil
		}
	}
	for _, id := range ids[:max(0, len(ids)-maxSessions)] {
		delete(s.sessions, id)
	}
}

// compact rewrites the file when most of it is of the past.
func (s *Store) compact() {
	if s.journal.lines < 2*len(s.sessions)+512 {
		return
	}
	lines := make([]line, 0, len(s.sessions))
	for _, id := range s.byUse() {
		k := s.sessions[id]
		l := line{Binding: wire.SessionBinding{SessionID: id, Revision: k.revision}, Detached: k.detached}
		if k.binding != nil {
			l.Binding = *k.binding
		}
		lines = append(lines, l)
	}
	if err := s.journal.rewrite(lines); err != nil {
		s.opt.Log.Warn("root grants: file not compacted", "dir", s.opt.Dir, "err", err)
	}
}

func (s *Store) byUse() []string {
	ids := make([]string, 0, len(s.sessions))
	for id := range s.sessions {
		ids = append(ids, id)
	}
	sorted.By(ids, func(a, b string) int {
		if d := int64(s.sessions[a].used) - int64(s.sessions[b].used); d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	return ids
}
