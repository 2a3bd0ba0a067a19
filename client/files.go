package client

import (
	"context"
	"errors"
	"io"

	"farhand/wire"
)

// Paths are absolute below the session's root or relative to it.

// Stat describes a file. One that isn't there is Exists false, not an error.
func (s *Session) Stat(ctx context.Context, path string, follow bool) (wire.FileStatResponse, error) {
	var out wire.FileStatResponse
	in := wire.FileStat{Path: path}
	if !follow {
		in.FollowSymlinks = &follow
	}
	err := s.do(ctx, request{method: method(wire.TFileStat), payload: in}, &out)
	return out, err
}

// List lists a directory, at most 1000 entries.
func (s *Session) List(ctx context.Context, list wire.FileList) (wire.FileListResponse, error) {
	var out wire.FileListResponse
	err := s.do(ctx, request{method: method(wire.TFileList), payload: list}, &out)
	return out, err
}

// Read reads a range of a file as bytes, whatever they are. length is at most
// the device's limit (10 MiB unless configured) and wire.MaxBinary.
func (s *Session) Read(ctx context.Context, path string, offset, length int64) (*wire.FileContents, error) {
	out := new(wire.FileContents)
	in := wire.FileRead{Path: path, Encoding: wire.EncodingBase64, Format: wire.FormatBytes, Offset: offset, Length: &length}
	if err := s.do(ctx, request{method: method(wire.TFileRead), payload: in}, out); err != nil {
		return nil, err
	}
	if int64(len(out.Content)) > length {
		return nil, wire.Errorf(wire.InternalError, "FILE_READ of %d bytes was answered with %d", length, len(out.Content))
	}
	return out, nil
}

// ReadStub makes a stub of a private file, which Turn takes. It stands for the file
// as it is now, within this session.
func (s *Session) ReadStub(ctx context.Context, path string) (wire.FileStub, error) {
	out := new(wire.FileContents)
	if err := s.do(ctx, request{method: method(wire.TFileRead), payload: wire.FileRead{Path: path, Mode: wire.ModeStub}}, out); err != nil {
		return wire.FileStub{}, err
	}
	if out.Stub == nil { // what doesn't know of stubs answers with content
		return wire.FileStub{}, wire.Errorf(wire.FeatureNotSupported, "this machine knows no private files").With("feature", string(wire.Privacy))
	}
	return *out.Stub, nil
}

// Privacy says whether something on the machine is private, so that there are stubs.
func (s *Session) Privacy() bool { return s.Info().Capabilities.Has(wire.Privacy) }

// Progress is told how far a transfer is. total is -1 while it isn't known.
type Progress func(done, total int64)

// Copied is the outcome of ReadAll.
type Copied struct {
	Bytes   int64
	Changed bool // the file changed meanwhile: what came may mix two states of it
}

// pieceSize is how much of a file one request of ReadAll asks for: big enough
// that a round trip of 100 ms costs little, small enough that others get a turn
// and that a lost link costs seconds.
const pieceSize = 2 << 20

// ReadAll copies a file of any size to w, in pieces, and reads one piece ahead.
// The file is as long as it was at the start; what is appended meanwhile is not
// copied. tell may be nil.
func (s *Session) ReadAll(ctx context.Context, path string, w io.Writer, tell Progress) (Copied, error) {
	var done Copied
	before, err := s.Stat(ctx, path, true)
	if err != nil {
		return done, err
	}
	if err := readable(path, before); err != nil {
		return done, err
	}
	total := *before.SizeBytes
	ctx, cancel := context.WithCancel(ctx)
	pieces := make(chan piece, 1)
	go func() { s.pieces(ctx, path, total, pieces) }()
	defer func() { // the reader is ours: it has ended when we return
		cancel()
		for range pieces {
		}
	}()
	for p := range pieces {
		if p.err != nil {
			return done, p.err
		}
		n, err := w.Write(p.content)
		done.Bytes += int64(n)
		if err != nil {
			return done, err
		}
		if tell != nil {
			tell(done.Bytes, total)
		}
	}
	after, err := s.Stat(ctx, path, true)
	if err != nil {
		return done, err
	}
	done.Changed = done.Bytes != total || changed(before, after)
	return done, nil
}

type piece struct {
	content []byte
	err     error
}

// pieces reads [0, total) in order and closes out.
func (s *Session) pieces(ctx context.Context, path string, total int64, out chan<- piece) {
	defer close(out)
	size := int64(pieceSize)
	for offset := int64(0); offset < total; {
		contents, err := s.Read(ctx, path, offset, min(size, total-offset))
		if smaller, ok := deviceLimit(err); ok && smaller < size {
			size = smaller
			continue
		}
		if err == nil && len(contents.Content) == 0 {
			return // it became shorter
		}
		p := piece{err: err}
		if err == nil {
			p.content = contents.Content
			offset += int64(len(p.content))
		}
		select {
		case out <- p:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// deviceLimit is the limit that a FILE_TOO_LARGE names.
func deviceLimit(err error) (int64, bool) {
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.FileTooLarge {
		return 0, false
	}
	limit, ok := e.Details["max_file_size_bytes"].(float64)
	return int64(limit), ok && limit >= 1
}

// readable refuses what has no bytes to copy.
func readable(path string, stat wire.FileStatResponse) error {
	switch {
	case !stat.Exists:
		return wire.Errorf(wire.PathNotFound, "%s does not exist", path).With("path", path)
	case stat.IsDir != nil && *stat.IsDir:
		return wire.Errorf(wire.InternalError, "%s is a directory", path).With("path", path).With("reason", "is_a_directory")
	case stat.IsFile == nil || !*stat.IsFile || stat.SizeBytes == nil:
		return wire.Errorf(wire.InternalError, "%s is not a regular file", path).With("path", path).With("reason", "not_a_regular_file")
	}
	return nil
}

func changed(a, b wire.FileStatResponse) bool {
	return !b.Exists || a.SizeBytes == nil || b.SizeBytes == nil || *a.SizeBytes != *b.SizeBytes ||
		a.MTime == nil || b.MTime == nil || *a.MTime != *b.MTime
}

// Write replaces or creates a file with content in one step: another reader sees
// the old file or the new one. Content that doesn't fit one frame
// (wire.MaxBinary, 12 MiB) is FILE_TOO_LARGE at once; the device's own limit
// (10 MiB unless configured) may be lower. content must not change until Write
// returns; if its context ended, not until Close of the client. tell may be nil.
func (s *Session) Write(ctx context.Context, path string, content []byte, createParents bool, tell Progress) error {
	if len(content) > wire.MaxBinary {
		return TooLarge(path, int64(len(content)), wire.MaxBinary)
	}
	total := int64(len(content))
	r := request{
		method:  method(wire.TFileWrite),
		payload: &wire.FileWrite{Path: path, Content: content, Encoding: wire.EncodingBase64, CreateParents: createParents},
	}
	if tell != nil {
		var encoded int64
		r.sending = func(n int) {
			encoded += int64(n)
			tell(min(encoded/4*3, total), total)
		}
	}
	return s.do(ctx, r, nil)
}

// TooLarge is the error for a file of size bytes where limit are allowed.
func TooLarge(path string, size, limit int64) error {
	return wire.Errorf(wire.FileTooLarge, "%s has %d bytes; one write takes at most %d", path, size, limit).
		With("path", path).With("attempted_bytes", size).With("max_file_size_bytes", limit).With("op", string(wire.TFileWrite))
}

// Delete removes a file, a link (not its target) or a directory.
func (s *Session) Delete(ctx context.Context, del wire.FileDelete) error {
	return s.do(ctx, request{method: method(wire.TFileDelete), payload: del}, nil)
}

// Move renames a file, a link or a directory within the session's root.
func (s *Session) Move(ctx context.Context, mv wire.FileMove) error {
	return s.do(ctx, request{method: method(wire.TFileMove), payload: mv}, nil)
}
