package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// pieces is memory for pieces on their way out.
var pieces = sync.Pool{New: func() any { return new([wire.TransferPiece]byte) }}

// Piece answers TRANSFER_READ. Nothing stays open: the file is found again by its
// path for each piece, and its version says that it is still the same.
//
// Failures: those of Read, INVALID_ARGUMENT and SOURCE_CHANGED.
func (r *Root) Piece(ctx context.Context, req wire.TransferRead) (*wire.Attached, Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	most := int64(wire.TransferPiece)
	if req.HashOnly {
		most = wire.TransferHashMost
	}
	if req.Offset < 0 || req.Length < 0 || req.Length > most || req.Offset+req.Length < 0 {
		return nil, trace, a.fail(wire.InvalidArgument, "", "offset must not be negative and length is 0 to %d", most).With("field", "length")
	}
	var answer *wire.Attached
	err := r.on(ctx, a, "read", true, &trace.Path, func(p *place) error {
		fd, err := r.openContent(a, p)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		answer, err = piece(ctx, a, fd, req)
		return err
	})
	if err != nil {
		return nil, trace, err
	}
	trace.Bytes = int64(len(answer.Data))
	return answer, trace, nil
}

// piece reads and hashes. The version is that before the reading, and must be the
// same after it.
func piece(ctx context.Context, a asked, fd int, req wire.TransferRead) (*wire.Attached, error) {
	st, err := fstat(fd)
	if err != nil {
		return nil, err
	}
	version := versionOf(&st)
	if req.Version != "" && req.Version != version {
		return nil, sourceChanged(a)
	}
	length := min(req.Length, max(st.Size-req.Offset, 0))
	memory := pieces.Get().(*[wire.TransferPiece]byte)
	answer := &wire.Attached{Done: func() { pieces.Put(memory) }}
	sum := sha256.New()
	if req.HashOnly {
		err = hashRange(ctx, fd, req.Offset, length, memory[:], sum)
	} else {
		answer.Data = memory[:length]
		var n int
		n, err = preadFull(ctx, fd, answer.Data, req.Offset)
		if err == nil && int64(n) < length {
			err = sourceChanged(a)
		}
		sum.Write(answer.Data) // never fails
	}
	if err == nil {
		if st, err = fstat(fd); err == nil && versionOf(&st) != version {
			err = sourceChanged(a)
		}
	}
	if err != nil {
		answer.Release()
		return nil, err
	}
	answer.Payload = wire.TransferData{
		Version: version, Size: st.Size, Mode: octal(st.Mode), MTimeNS: st.Mtim.Nano(), Length: length, SHA256: hex.EncodeToString(sum.Sum(nil)),
	}
	return answer, nil
}

// hashRange hashes length bytes from off on; the file ends later.
func hashRange(ctx context.Context, fd int, off, length int64, buf []byte, sum hash.Hash) error {
	for length > 0 {
		n, err := preadFull(ctx, fd, buf[:min(length, int64(len(buf)))], off)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // it became shorter, which its version tells
		}
		sum.Write(buf[:n]) // never fails
		off, length = off+int64(n), length-int64(n)
	}
	return nil
}

func sourceChanged(a asked) error {
	return a.fail(wire.SourceChanged, "", "%s changed while it was read", a.shown()).With("hint", "read it again from the start")
}

// versionOf changes with whatever changes a file.
func versionOf(st *unix.Stat_t) string {
	text := fmt.Sprintf("%d %d %d %d %d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
