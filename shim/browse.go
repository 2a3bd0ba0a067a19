package shim

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"farhand/audit"
	"farhand/grant"
	"farhand/internal/sorted"
	"farhand/wire"
)

// Bounds of browsing, all from the reference shim but for the page, which is
// the protocol's.
const (
	maxBrowses    = 8
	maxScanned    = 1000 // entries of a directory looked at, whatever they are
	maxRefs       = 1200 // references of one browse
	maxCursors    = 32   // pages of one browse that can be asked for
	browseLife    = 300 * time.Second
	maxBrowseName = 1024
	maxToken      = 256
)

// browser hands out opaque references to directories: nothing that the platform
// sends is ever a path. Safe for concurrent use.
type browser struct {
	roots     []string
	forbidden func(string) error

	mu      sync.Mutex
	browses []*browse // the one used last stands last
}

// browse is one walk; it lives five minutes from its start.
type browse struct {
	id      string
	expires time.Time
	dirs    map[string]*dir   // by reference
	refs    map[string]string // reference by path
	cursors []cursor          // the one used last stands last
}

type dir struct {
	path   string
	parent *string // the reference under which it was first listed
}

type cursor struct {
	token, ref string
	offset     int
}

func newBrowser(roots []string, forbidden func(string) error) *browser {
	return &browser{roots: roots, forbidden: forbidden}
}

// reset invalidates everything.
func (b *browser) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.browses = nil
}

// active says whether a browse is under way.
func (b *browser) active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	return len(b.browses) > 0
}

// directoryList answers DIRECTORY_LIST_REQUEST.
func (s *Shim) directoryList(ctx context.Context, c *Call, req wire.DirectoryListRequest) (any, error) {
	start := time.Now()
	resp, err := s.browser.list(ctx, req, c.Policy())
	entry := audit.Entry{RequestID: c.ID, Op: audit.OpDirectoryList, Result: audit.ResultOf(err, time.Since(start))}
	if err != nil {
		id := req.BrowseID
		if id != nil && len(*id) > maxToken {
			id = nil
		}
		entry.Details = []audit.Field{audit.StringOrNull("browse_id", id)}
		s.note(entry)
		return nil, err
	}
	path := audit.Null("path")
	if resp.Current != nil {
		path = audit.String("path", resp.Current.Path)
	}
	entry.Details = []audit.Field{
		audit.String("browse_id", resp.BrowseID), path,
		audit.Int("entries_returned", len(resp.Entries)), audit.Bool("truncated", resp.Truncated),
	}
	if err := s.record(ctx, entry); err != nil {
		return nil, err
	}
	return resp, nil
}

func (b *browser) list(ctx context.Context, req wire.DirectoryListRequest, policy *grant.Policy) (*wire.DirectoryListResponse, error) {
	switch {
	case req.BrowseID == nil && req.DirectoryRef == nil && req.Cursor == nil:
		return b.start(ctx, policy)
	case !isToken(req.BrowseID) || !isToken(req.DirectoryRef) || req.Cursor != nil && !isToken(req.Cursor):
		return nil, invalidReference()
	}
	return b.open(ctx, *req.BrowseID, *req.DirectoryRef, req.Cursor, policy)
}

func isToken(s *string) bool { return s != nil && *s != "" && len(*s) <= maxToken }

func invalidReference() error {
	return wire.Errorf(wire.DirectoryReferenceInvalid, "the directory reference is unknown, expired or used up")
}

// leadsTo says whether the ceilings allow a directory as a root, or one below it:
// what can't lead to a root isn't offered.
func leadsTo(policy *grant.Policy, path string) bool {
	if policy.Root(path) == nil {
		return true
	}
	for _, c := range []*wire.Ceiling{&policy.Config, policy.Set.Approval, policy.Set.Token, policy.Set.Session} {
		if c == nil || c.Roots == nil {
			continue
		}
		for _, root := range *c.Roots {
			inside, err := filepath.Rel(path, root)
			if err == nil && filepath.IsLocal(inside) && policy.Root(root) == nil {
				return true
			}
		}
	}
	return false
}

// start begins a browse at the configured roots.
func (b *browser) start(ctx context.Context, policy *grant.Policy) (*wire.DirectoryListResponse, error) {
	var paths []string
	for _, root := range b.roots {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// A configured root may be reached over a link; what is offered is
		// where it leads.
		real, err := filepath.EvalSymlinks(root)
		if err != nil || slices.Contains(paths, real) || !leadsTo(policy, real) || b.eligible(real) != nil {
			continue
		}
		paths = append(paths, real)
	}
	cut := len(paths) > wire.MaxBrowseEntries
	if cut {
		paths = paths[:wire.MaxBrowseEntries]
	}
	walk := &browse{id: newToken(), expires: time.Now().Add(browseLife), dirs: make(map[string]*dir), refs: make(map[string]string)}
	resp := walk.response()
	resp.Truncated = cut
	for _, path := range paths {
		resp.Entries = append(resp.Entries, walk.entry(path, nil))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	if len(b.browses) >= maxBrowses {
		b.browses = slices.Delete(b.browses, 0, 1)
	}
	b.browses = append(b.browses, walk)
	return resp, nil
}

// open lists one page of a directory.
func (b *browser) open(ctx context.Context, id, ref string, token *string, policy *grant.Policy) (*wire.DirectoryListResponse, error) {
	path, offset, err := b.lookUp(id, ref, token)
	if err != nil {
		return nil, err
	}
	if err := b.eligible(path); err != nil {
		return nil, unavailable()
	}
	names, more, err := b.scan(ctx, path, policy) // without the lock: a disk may be slow
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	walk := b.find(id)
	if walk == nil {
		return nil, invalidReference()
	}
	return walk.page(ref, path, names, offset, more), nil
}

// lookUp finds what a reference and a cursor stand for.
func (b *browser) lookUp(id, ref string, token *string) (path string, offset int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	walk := b.find(id)
	if walk == nil || walk.dirs[ref] == nil {
		return "", 0, invalidReference()
	}
	if token != nil {
		i := slices.IndexFunc(walk.cursors, func(c cursor) bool { return c.token == *token && c.ref == ref })
		if i < 0 {
			return "", 0, invalidReference()
		}
		offset = walk.cursors[i].offset
		walk.use(i)
	}
	return walk.dirs[ref].path, offset, nil
}

// take resolves a reference to attach it; the whole browse is used up by it.
func (b *browser) take(id, ref string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	walk := b.find(id)
	if walk == nil || walk.dirs[ref] == nil {
		return "", invalidReference()
	}
	path := walk.dirs[ref].path
	if err := b.eligible(path); err != nil {
		return "", unavailable()
	}
	b.browses = slices.DeleteFunc(b.browses, func(w *browse) bool { return w == walk })
	return path, nil
}

func unavailable() error {
	return wire.Errorf(wire.DirectoryUnavailable, "the directory is gone, became a link or can't be used any more")
}

// find is the browse of that id, now the one used last. Called with mu held.
func (b *browser) find(id string) *browse {
	b.expire()
	i := slices.IndexFunc(b.browses, func(w *browse) bool { return w.id == id })
	if i < 0 {
		return nil
	}
	walk := b.browses[i]
	b.browses = append(slices.Delete(b.browses, i, i+1), walk)
	return walk
}

// expire drops what is over. Called with mu held.
func (b *browser) expire() {
	now := time.Now()
	b.browses = slices.DeleteFunc(b.browses, func(w *browse) bool { return !now.Before(w.expires) })
}

// eligible says why a canonical path can't be a root: it must be a directory
// that is no link and that we may read, write and enter, must not lie in what is
// closed off, and must be one that HELLO can announce.
func (b *browser) eligible(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fs.ErrInvalid
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if real != path {
		return errors.New("a directory above became a link")
	}
	if err := checkRootText(path); err != nil {
		return err
	}
	if err := b.forbidden(path); err != nil {
		return err
	}
	return access(path)
}

// scan lists the directories that may be chosen, sorted, and says whether the
// bound kept it from looking at everything.
func (b *browser) scan(ctx context.Context, path string, policy *grant.Policy) (names []string, more bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, unavailable()
	}
	defer f.Close()
	entries, err := f.ReadDir(maxScanned)
	if err == nil {
		_, err = f.ReadDir(1)
		more = err == nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, unavailable()
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		if leadsTo(policy, filepath.Join(path, e.Name())) && b.choosable(path, e) {
			names = append(names, e.Name())
		}
	}
	sorted.By(names, func(a, b string) int {
		return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
	})
	return names, more, nil
}

func (b *browser) choosable(parent string, e fs.DirEntry) bool {
	if !e.IsDir() || !utf8.ValidString(e.Name()) || utf8.RuneCountInString(e.Name()) > maxBrowseName {
		return false
	}
	path := filepath.Join(parent, e.Name())
	return checkRootText(path) == nil && b.forbidden(path) == nil && access(path) == nil
}

// page makes the answer for one page of a listing.
func (w *browse) page(ref, path string, names []string, offset int, more bool) *wire.DirectoryListResponse {
	d := w.dirs[ref]
	resp := w.response()
	resp.Current = &wire.DirectoryEntry{DirectoryRef: ref, Name: baseName(path), Path: path}
	resp.ParentRef = d.parent
	resp.Truncated = more
	offset = min(offset, len(names))
	end := min(offset+wire.MaxBrowseEntries, len(names))
	for _, name := range names[offset:end] {
		child := filepath.Join(path, name)
		if _, known := w.refs[child]; !known && len(w.dirs) >= maxRefs {
			resp.Truncated = true
			return resp
		}
		resp.Entries = append(resp.Entries, w.entry(child, &ref))
	}
	if end < len(names) {
		token := w.cursor(ref, end)
		resp.NextCursor = &token
	}
	return resp
}

func (w *browse) response() *wire.DirectoryListResponse {
	return &wire.DirectoryListResponse{
		BrowseID: w.id, Entries: []wire.DirectoryEntry{},
		ExpiresAt: float64(w.expires.UnixMilli()) / 1e3,
	}
}

// entry is the entry of a directory, with the reference that it had before.
func (w *browse) entry(path string, parent *string) wire.DirectoryEntry {
	ref, known := w.refs[path]
	if !known {
		ref = newToken()
		w.refs[path] = ref
		w.dirs[ref] = &dir{path: path, parent: parent}
	}
	return wire.DirectoryEntry{DirectoryRef: ref, Name: baseName(path), Path: path}
}

// cursor is the token of a page; the same page has the same one.
func (w *browse) cursor(ref string, offset int) string {
	i := slices.IndexFunc(w.cursors, func(c cursor) bool { return c.ref == ref && c.offset == offset })
	if i >= 0 {
		token := w.cursors[i].token
		w.use(i)
		return token
	}
	if len(w.cursors) >= maxCursors {
		w.cursors = slices.Delete(w.cursors, 0, 1)
	}
	c := cursor{newToken(), ref, offset}
	w.cursors = append(w.cursors, c)
	return c.token
}

// use makes the cursor at i the one used last.
func (w *browse) use(i int) {
	c := w.cursors[i]
	w.cursors = append(slices.Delete(w.cursors, i, i+1), c)
}

func baseName(path string) string { return filepath.Base(path) }

// newToken has 192 random bits in 32 characters.
func newToken() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
