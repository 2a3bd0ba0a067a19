package files

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Stub is a private file in one state.
type Stub struct {
	Path   string // as it may be told
	MIME   string // by the name's extension; empty: unknown
	Digest string // of the content and the state, in hex
	Size   int64

	path string // canonical
	st   unix.Stat_t
}

// Stub makes a stub of a private file, of MaxStub bytes at most. preview may be
// nil.
//
// Failures: those of Read, FILE_TOO_LARGE, SOURCE_CHANGED (it changed meanwhile),
// and INTERNAL_ERROR with details.reason not_private.
func (r *Root) Stub(ctx context.Context, path string, preview Preview) (*Stub, Trace, error) {
	a := r.ask("path", path)
	trace := Trace{Path: a.shown()}
	var stub *Stub
	err := r.on(ctx, a, "read", true, &trace.Path, func(p *place) error {
		switch {
		case !p.exists:
			return missing(a, p)
		case !p.private():
			return a.fail(wire.InternalError, "not_private", "%s is not private", a.shown()).With("hint", "read it as it is")
		case kindOf(&p.st) != unix.S_IFREG:
			return notRegular(a, &p.st)
		}
		fd, err := r.reopen(p, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		stub, err = r.stub(ctx, a, p, fd, preview)
		return err
	})
	return stub, trace, err
}

func (r *Root) stub(ctx context.Context, a asked, p *place, fd int, preview Preview) (*Stub, error) {
	st, err := fstat(fd)
	if err != nil {
		return nil, err
	}
	if st.Size > MaxStub {
		return nil, tooLarge(a, "FILE_READ", st.Size, MaxStub)
	}
	s := &Stub{Path: p.path(r), MIME: mimeType(p.name), Size: st.Size, path: "/" + strings.Join(p.names(), "/"), st: st}
	sum := r.private.digest(&st)
	content := descriptor(fd)
	if _, err := io.Copy(sum, &reader{ctx: ctx, from: content, left: st.Size}); err != nil {
		return nil, err
	}
	s.Digest = hex.EncodeToString(sum.Sum(nil))
	if preview != nil {
		if err := preview(ctx, content, st.Size, s.MIME, p.is.named); err != nil {
			return nil, err
		}
	}
	if now, err := fstat(fd); err != nil || !sameState(&now, &st) {
		return nil, orError(err, sourceChanged(a))
	}
	return s, nil
}

// digest begins that of a file in one state: who knows the digest of a file can't
// find out with other files, nor with later states of this one, what it held.
func (p *Private) digest(st *unix.Stat_t) hash.Hash {
	key := p.mac("digest", fmt.Sprint(st.Dev, " ", st.Ino, " ", st.Size, " ", st.Mtim.Nano(), " ", st.Ctim.Nano()))
	return hmac.New(sha256.New, key)
}

// sameState says whether a file is exactly what it was.
func sameState(a, b *unix.Stat_t) bool {
	return identOf(a) == identOf(b) && kindOf(a) == kindOf(b) && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// Content reads the file that s stands for, of which there may be at most most
// bytes. What it returns is private.
//
// Failures: STUB_STALE (it isn't exactly what it was), FILE_TOO_LARGE and those of
// the disk.
func (r *Root) Content(ctx context.Context, s *Stub, most int64) ([]byte, error) {
	told := s.Path
	a := asked{key: "path", path: s.path, as: &told}
	if err := r.enter(ctx); err != nil {
		return nil, fault(a, "read", err)
	}
	defer r.leave()
	if s.Size > most {
		return nil, tooLarge(a, "LOCAL_LLM_TURN", s.Size, most)
	}
	b, err := r.content(ctx, a, s)
	if errors.Is(err, errRaced) || errors.Is(err, wire.PathNotFound) {
		err = stale(a)
	}
	return b, fault(a, "read", err)
}

func (r *Root) content(ctx context.Context, a asked, s *Stub) ([]byte, error) {
	p, err := r.resolve(ctx, a, false)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if !p.exists || !sameState(&p.st, &s.st) {
		return nil, stale(a)
	}
	fd, err := r.reopen(&p, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, s.Size)
	n, err := preadFull(ctx, fd, b, 0)
	if err != nil {
		return nil, err
	}
	now, err := fstat(fd)
	if err != nil {
		return nil, err
	}
	sum := r.private.digest(&now)
	sum.Write(b[:n]) // never fails
	if !sameState(&now, &s.st) || hex.EncodeToString(sum.Sum(nil)) != s.Digest {
		return nil, stale(a)
	}
	return b, nil
}

func stale(a asked) *wire.Error {
	return a.fail(wire.StubStale, "", "%s is no longer what its stub stands for", a.shown()).With("hint", "ask for another stub")
}

// descriptor reads a file by its descriptor.
type descriptor int

func (d descriptor) ReadAt(p []byte, off int64) (int, error) {
	n, err := preadFull(context.Background(), int(d), p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// reader reads the first left bytes of a file, until ctx ends.
type reader struct {
	ctx  context.Context
	from descriptor
	off  int64
	left int64
}

func (r *reader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.from.ReadAt(p[:min(int64(len(p)), r.left)], r.off)
	r.off, r.left = r.off+int64(n), r.left-int64(n)
	return n, err
}
