package route

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"farhand/wire"
)

const (
	rootsFresh = 30 * time.Second // how long the list of roots is taken as still true
	maxDepth   = 128              // directories between an offered root and a session's
	maxPages   = 32               // of one directory: a device lists at most 1000 entries, 200 a page
	maxRef     = 256              // characters of a reference or cursor
)

// root is a directory that a device offers for browsing.
type root struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// place is a directory as ATTACH_SESSION names it.
type place struct {
	browse, ref, path string
}

// offered lists the roots that the device offers.
func (m *machine) offered(ctx context.Context) ([]root, error) {
	m.mu.Lock()
	if m.control != nil && m.rootsOf == m.control && time.Since(m.rootsAt) < rootsFresh {
		defer m.mu.Unlock()
		return m.roots, nil
	}
	m.mu.Unlock()
	l, err := m.browse(ctx, wire.DirectoryListRequest{})
	if err != nil {
		return nil, err
	}
	return m.keepRoots(l), nil
}

func (m *machine) keepRoots(l wire.DirectoryListResponse) []root {
	roots := make([]root, 0, len(l.Entries))
	for _, e := range l.Entries {
		roots = append(roots, root{e.Name, e.Path})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roots, m.rootsAt, m.rootsOf = roots, time.Now(), m.control
	return roots
}

// browse asks for one page and checks it.
func (m *machine) browse(ctx context.Context, q wire.DirectoryListRequest) (wire.DirectoryListResponse, error) {
	var l wire.DirectoryListResponse
	body, err := m.call(ctx, wire.TDirectoryListRequest, q, m.srv.timing.control)
	if err != nil {
		return l, err
	}
	if err := wire.Decode(body, &l); err != nil {
		return l, badAnswer(wire.TDirectoryListResponse)
	}
	ok := fits(l.BrowseID) && len(l.Entries) <= wire.MaxBrowseEntries && (q.BrowseID == nil || *q.BrowseID == l.BrowseID) &&
		(l.NextCursor == nil || fits(*l.NextCursor))
	for _, e := range l.Entries {
		ok = ok && fits(e.DirectoryRef) && e.Name != "" && len(e.Path) <= 4*wire.MaxAllowedRoot && path.IsAbs(e.Path)
	}
	if !ok {
		return l, badAnswer(wire.TDirectoryListResponse)
	}
	return l, nil
}

func fits(ref string) bool { return ref != "" && len(ref) <= maxRef }

func badAnswer(t wire.Type) *wire.Error {
	return wire.Errorf(wire.InternalError, "the machine answered with a %s that breaks the protocol", t).
		With("reason", "invalid_payload")
}

// walk finds the directory target by descending from the offered root above it,
// one component at a time. target is absolute and clean.
func (m *machine) walk(ctx context.Context, target string) (place, error) {
	l, err := m.browse(ctx, wire.DirectoryListRequest{})
	if err != nil {
		return place{}, err
	}
	m.keepRoots(l)
	at, ok := above(l.Entries, target, "")
	if !ok {
		return place{}, wire.Errorf(wire.PathOutsideAllowedRoot, "the machine offers no directory at or above this one").
			With("path", target)
	}
	for range maxDepth {
		if at.Path == target {
			return place{l.BrowseID, at.DirectoryRef, at.Path}, nil
		}
		next, err := m.descend(ctx, l.BrowseID, at, target)
		if err != nil {
			return place{}, err
		}
		at = next
	}
	return place{}, wire.Errorf(wire.PathNotFound, "the directory lies too deep").With("path", target)
}

// descend finds the child of dir that is target or lies above it.
func (m *machine) descend(ctx context.Context, browse string, dir wire.DirectoryEntry, target string) (wire.DirectoryEntry, error) {
	var cursor *string
	for range maxPages {
		l, err := m.browse(ctx, wire.DirectoryListRequest{BrowseID: &browse, DirectoryRef: &dir.DirectoryRef, Cursor: cursor})
		if err != nil {
			return wire.DirectoryEntry{}, err
		}
		if next, ok := above(l.Entries, target, dir.Path); ok {
			return next, nil
		}
		if l.NextCursor == nil {
			if l.Truncated {
				return wire.DirectoryEntry{}, wire.Errorf(wire.DirectoryUnavailable,
					"%s has too many entries to find the next directory in it", path.Base(dir.Path)).With("path", target)
			}
			break
		}
		cursor = l.NextCursor
	}
	return wire.DirectoryEntry{}, wire.Errorf(wire.PathNotFound, "there is no such directory, or the machine may not use it").
		With("path", target)
}

// above finds the entry with the longest path that is target or lies above it,
// and below parent if that is given.
func above(entries []wire.DirectoryEntry, target, parent string) (best wire.DirectoryEntry, found bool) {
	for _, e := range entries {
		if !within(target, e.Path) || parent != "" && (e.Path == parent || !within(e.Path, parent)) {
			continue
		}
		if !found || len(e.Path) > len(best.Path) {
			best, found = e, true
		}
	}
	return best, found
}

// cleanRoot checks a root that an operator asks for.
func cleanRoot(p string) (string, *wire.Error) {
	if !path.IsAbs(p) || len(p) > 4*wire.MaxAllowedRoot || strings.ContainsRune(p, 0) {
		return "", wire.Errorf(wire.InvalidArgument, "root must be an absolute path").With("path", cut(p, 256))
	}
	return path.Clean(p), nil
}

// defaultRoot is where a session goes that names no root: the first offered
// directory that the ceilings allow, else the first allowed directory in an
// offered one.
func defaultRoot(offered []root, lim ceilings) (string, *wire.Error) {
	if len(offered) == 0 {
		return "", wire.Errorf(wire.DirectoryUnavailable, "the machine offers no directory")
	}
	for _, r := range offered {
		if lim.checkRoot(r.Path) == nil {
			return r.Path, nil
		}
	}
	for _, c := range []*wire.Ceiling{lim.session, lim.token, lim.approval} {
		if c == nil || c.Roots == nil {
			continue
		}
		for _, p := range *c.Roots {
			for _, r := range offered {
				if within(p, r.Path) && lim.checkRoot(p) == nil {
					return path.Clean(p), nil
				}
			}
		}
	}
	return "", lim.checkRoot(offered[0].Path)
}

// attach binds a new session to a directory and opens it: walk, attach, write
// the record, activate, wait for the data socket. What fails leaves nothing.
func (m *machine) attach(ctx context.Context, rec record) (*session, error) {
	s := m.srv
	control := m.online()
	if control == nil {
		return nil, m.unreachable()
	}
	at, err := m.walk(ctx, rec.Root)
	if err != nil {
		return nil, err
	}
	body, err := m.call(ctx, wire.TAttachSession, wire.AttachSession{SessionID: rec.ID, BrowseID: at.browse,
		DirectoryRef: at.ref, ExpectedConnectionID: &control.id}, s.timing.control)
	if err != nil {
		if errors.Is(err, wire.OpUnconfirmed) {
			s.detach(ctx, m, rec.ID)
		}
		return nil, err
	}
	ses, err := m.activate(ctx, rec, body)
	if err != nil {
		s.detach(s.ctx, m, rec.ID)
		return nil, err
	}
	return ses, nil
}

// activate goes on from SESSION_ATTACHED.
func (m *machine) activate(ctx context.Context, rec record, attached []byte) (*session, error) {
	s := m.srv
	var b wire.SessionBinding
	if err := wire.Decode(attached, &b); err != nil || !wellFormed(b) || b.SessionID != rec.ID || b.AllowedRoot != rec.Root || b.Revision != 1 {
		return nil, badAnswer(wire.TSessionAttached)
	}
	rec.Fingerprint, rec.Revision, rec.Grant = b.Fingerprint, b.Revision, b.RootGrant
	if err := s.createRecord(ctx, rec); err != nil {
		return nil, err
	}
	ses := s.adopt(rec)
	err := ses.open(ctx)
	if err != nil {
		if err := s.deleteRecord(s.ctx, rec.Owner, rec.key()); err != nil {
			s.log.Error("record of a session that failed not removed", "session", rec.ID, "error", err)
		}
		s.forget(ses, wire.ReasonUserRevoked)
		return nil, err
	}
	return ses, nil
}

// open activates a session that was just attached and waits for its socket.
func (ses *session) open(ctx context.Context) error {
	m := ses.machine
	activate := func() ([]byte, error) {
		return m.call(ctx, wire.TActivateSession,
			wire.ActivateSession{SessionID: ses.rec.ID, Revision: ses.rec.Revision}, m.srv.timing.control)
	}
	body, err := activate()
	if m.crowded(ctx, err, ses) {
		body, err = activate()
	}
	if err != nil {
		return err
	}
	var b wire.SessionBinding
	if err := wire.Decode(body, &b); err != nil {
		return badAnswer(wire.TSessionActivated)
	}
	b.RootGrant = ses.rec.Grant
	if b != ses.rec.binding() {
		return badAnswer(wire.TSessionActivated)
	}
	if !ses.await(ctx, 0, m.srv.timing.dataSocket) {
		return m.about(wire.Errorf(wire.MachineUnreachable, "%s didn't open the session's connection in time", m.called()))
	}
	return nil
}

func wellFormed(b wire.SessionBinding) bool {
	if len(b.Fingerprint) != 64 || b.RootGrant == "" || len(b.RootGrant) > wire.MaxGrant {
		return false
	}
	return strings.Trim(b.Fingerprint, "0123456789abcdef") == ""
}
