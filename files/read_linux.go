package files

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// readPiece is how many bytes are read between two looks at the context.
const readPiece = 4 << 20

// Read answers FILE_READ: Length bytes (or all) from Offset on, as they stand on
// disk. limit is the negotiated max_file_size_bytes; what one frame can carry
// (wire.MaxText, wire.MaxBinary) limits it further. The test is on what was asked
// for, so a range of a larger file may be read, and too long a range fails even
// on a small file. An offset beyond the end gives empty content. A file that
// shrinks meanwhile gives what is left.
//
// Failures: PATH_NOT_FOUND, PATH_OUTSIDE_ALLOWED_ROOT, PATH_INVALID_CHARS,
// FILE_TOO_LARGE, PERMISSION_DENIED, PRIVACY_MODE_BLOCKED, and INTERNAL_ERROR with details.reason
// is_a_directory, not_a_regular_file (never opened, so a FIFO can't hang and a
// device isn't touched) or invalid_payload.
func (r *Root) Read(ctx context.Context, req wire.FileRead, limit int64) (*wire.FileContents, Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	if req.Offset < 0 || (req.Length != nil && *req.Length <= 0) {
		return nil, trace, a.fail(wire.InternalError, "invalid_payload", "offset must not be negative and length must be positive")
	}
	answer, frame := &wire.FileContents{Encoding: wire.EncodingUTF8}, int64(wire.MaxText)
	if req.Binary() {
		answer.Encoding, frame = wire.EncodingBase64, wire.MaxBinary
	}
	limit = min(limit, frame)
	err := r.on(ctx, a, "read", true, &trace.Path, func(p *place) error {
		fd, err := r.openContent(a, p)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return r.readRange(ctx, a, fd, req, limit, answer)
	})
	if err != nil {
		return nil, trace, err
	}
	trace.Bytes = answer.SizeBytes
	return answer, trace, nil
}

// openContent opens a file whose content may be told: the only way to one that leaves
// the machine.
func (r *Root) openContent(a asked, p *place) (int, error) {
	switch {
	case !p.exists:
		return -1, missing(a, p)
	case p.private():
		return -1, r.isPrivate(a)
	case kindOf(&p.st) != unix.S_IFREG:
		return -1, notRegular(a, &p.st)
	}
	return r.reopen(p, unix.O_RDONLY)
}

// readRange reads into one buffer of the right size.
func (r *Root) readRange(ctx context.Context, a asked, fd int, req wire.FileRead, limit int64, answer *wire.FileContents) error {
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	there := max(st.Size-req.Offset, 0)
	requested := there
	if req.Length != nil {
		requested = *req.Length
	}
	if requested > limit {
		return tooLarge(a, "FILE_READ", requested, limit)
	}
	n := int(min(requested, there))
	if answer.Encoding == wire.EncodingBase64 && n >= parallel {
		text, done := r.spare.take(base64.StdEncoding.EncodedLen(n))
		err := readEncoded(ctx, fd, req.Offset, n, text)
		if err == nil {
			answer.Text, answer.Done = text, done
		} else if !errors.Is(err, errShrank) {
			return err
		}
	}
	if answer.Text == nil {
		if n, err = r.readPlain(ctx, fd, req.Offset, n, answer); err != nil {
			return err
		}
	}
	if st, err = fstat(fd); err != nil { // it may have grown or shrunk
		return err
	}
	answer.SizeBytes = int64(n)
	answer.Truncated = req.Offset+int64(n) < st.Size
	return nil
}

// readPlain reads at most n bytes from off on, and says how many there were.
func (r *Root) readPlain(ctx context.Context, fd int, off int64, n int, answer *wire.FileContents) (int, error) {
	buf, done := r.spare.take(n)
	got, err := preadFull(ctx, fd, buf, off)
	answer.Content, answer.Done = buf[:got], done
	return got, err
}

// preadFull fills buf as far as the file goes.
func preadFull(ctx context.Context, fd int, buf []byte, off int64) (int, error) {
	n := 0
	for n < len(buf) {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, err := pread(fd, buf[n:min(len(buf), n+readPiece)], off+int64(n))
		if err != nil {
			return n, err
		}
		if got == 0 {
			break
		}
		n += got
	}
	return n, nil
}

const (
	// parallel is the size from which reading and encoding is shared between
	// processors: below it, waking one takes longer.
	parallel = 1 << 20
	// share is what one of them does at a time: divisible by three, so that
	// only the end is padded, and small enough to be encoded from the cache.
	share = 96 << 10
	// most processors that take part; the memory is the limit beyond.
	most = 4
)

// errShrank says that the file ended before what it had promised.
var errShrank = errors.New("the file shrank while it was read")

// readEncoded reads n bytes from off on and puts their base64 into text.
func readEncoded(ctx context.Context, fd int, off int64, n int, text []byte) error {
	var next atomic.Int64
	work := func() error {
		buf := make([]byte, share)
		for {
			at := int(next.Add(share)) - share
			if at >= n {
				return nil
			}
			piece := buf[:min(share, n-at)]
			got, err := preadFull(ctx, fd, piece, off+int64(at))
			if err != nil {
				return err
			}
			if got < len(piece) {
				return errShrank
			}
			wire.EncodeBase64(text[at/3*4:][:base64.StdEncoding.EncodedLen(got)], piece)
		}
	}
	helpers := min(runtime.GOMAXPROCS(0), most) - 1
	results := make(chan error, helpers)
	for range helpers {
		go func() { results <- work() }()
	}
	err := work()
	for range helpers {
		if e := <-results; err == nil {
			err = e
		}
	}
	return err
}

// pooled is the size from which memory is used again: clearing and faulting in
// fresh memory of some megabytes costs as much as reading them.
const pooled = 256 << 10

// spareTime is how long memory waits to be used again. A collection alone can't
// decide that: allocating megabytes is what brings it about.
const spareTime = 5 * time.Second

// spare is the memory of the last large read.
type spare struct {
	mu    sync.Mutex
	last  []byte
	timer *time.Timer // forgets last
}

// take is n bytes and what gives them back; nil where that isn't worth it.
func (s *spare) take(n int) ([]byte, func()) {
	if n < pooled {
		return make([]byte, n), nil
	}
	s.mu.Lock()
	b := s.last
	s.last = nil
	s.mu.Unlock()
	if cap(b) < n {
		b = make([]byte, n)
	}
	return b[:n], func() { s.put(b) }
}

func (s *spare) put(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = b
	if s.timer == nil {
		s.timer = time.AfterFunc(spareTime, s.forget)
		return
	}
	s.timer.Reset(spareTime)
}

func (s *spare) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}
