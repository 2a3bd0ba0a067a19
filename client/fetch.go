package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"sync"
	"time"

	"farhand/wire"
)

// Source is a file of the machine, to be copied here or to another machine. It is
// read in pieces, several under way at once, each checked by its hash; links that
// are lost meanwhile are waited for (patience, as in PutOptions).
//
// Failures of reading it are those of the device; wire.SourceChanged says that the
// file is no longer the one that it was.
func (s *Session) Source(ctx context.Context, name string, most time.Duration) (Source, error) {
	if !s.Transfers() {
		return s.sourceWhole(ctx, name)
	}
	patience := newPatience(most)
	for {
		d, err := s.look(ctx, wire.TransferRead{Path: name})
		if err == nil {
			return s.sourceOf(name, d, most)
		}
		if err := patience.wait(ctx, err); err != nil {
			return Source{}, err
		}
	}
}

// look asks for what is known of a file, and for the hash of a range of it.
func (s *Session) look(ctx context.Context, r wire.TransferRead) (wire.TransferData, error) {
	var d wire.TransferData
	r.HashOnly = true
	err := s.do(ctx, request{method: method(wire.TTransferRead), payload: r}, &d)
	return d, err
}

func (s *Session) sourceOf(name string, d wire.TransferData, most time.Duration) (Source, error) {
	mode, err := parseMode(d.Mode)
	if err != nil || d.Size < 0 {
		return Source{}, wire.Errorf(wire.InternalError, "the machine says that %s has the mode %.16q and %d bytes", name, d.Mode, d.Size)
	}
	return Source{
		Size: d.Size, Key: s.Info().MachineID + " " + d.Version, Mode: mode, HasMode: true, ModTime: time.Unix(0, d.MTimeNS),
		Open: func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			return s.fetch(ctx, name, d, offset, most), nil
		},
		Hash: func(ctx context.Context, offset, length int64) (string, error) {
			h, err := s.look(ctx, wire.TransferRead{Path: name, Offset: offset, Length: length, Version: d.Version})
			if err == nil && h.Length != length {
				err = changedSource(name)
			}
			return h.SHA256, err
		},
	}, nil
}

// sourceWhole is a file of a machine that knows FILE_READ alone.
func (s *Session) sourceWhole(ctx context.Context, name string) (Source, error) {
	stat, err := s.Stat(ctx, name, true)
	if err == nil {
		err = readable(name, stat)
	}
	if err != nil {
		return Source{}, err
	}
	open := func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		if offset != 0 {
			return nil, wire.Errorf(wire.FeatureNotSupported, "the machine can't go on with a file").With("feature", string(wire.Transfer))
		}
		r, w := io.Pipe()
		ctx, cancel := context.WithCancel(ctx)
		p := &piped{PipeReader: r, cancel: cancel}
		p.task.Go(func() {
			done, err := s.ReadAll(ctx, name, w, nil)
			if err == nil && done.Changed {
				err = changedSource(name)
			}
			w.CloseWithError(err)
		})
		return p, nil
	}
	src := Source{Size: *stat.SizeBytes, Open: open}
	if stat.Mode != nil {
		if mode, err := parseMode(*stat.Mode); err == nil {
			src.Mode, src.HasMode = mode, true
		}
	}
	if stat.MTime != nil {
		src.ModTime = microseconds(*stat.MTime)
	}
	return src, nil
}

// microseconds is a time told in seconds, which as a float64 hold about as much: a
// time's nanoseconds are lost.
func microseconds(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }

// piped is the reading end of a pipe whose writer it waits for.
type piped struct {
	*io.PipeReader
	cancel context.CancelFunc
	task   sync.WaitGroup
}

func (p *piped) Close() error {
	p.cancel()
	err := p.PipeReader.Close()
	p.task.Wait()
	return err
}

// fetched is a file that comes. One goroutine asks for pieces ahead of the reader.
type fetched struct {
	s        *Session
	ctx      context.Context
	name     string
	file     wire.TransferData
	at       int64 // what the reader gets next
	patience *patience

	rest   []byte // of the piece at hand
	done   func() // gives its memory back
	flight chan ask
	asked  context.Context // of what was asked for
	stop   context.CancelFunc
	asking sync.WaitGroup
}

// ask is a piece that was asked for.
type ask struct {
	*started
	length int64
	since  time.Time
	err    error // why it wasn't
}

func (s *Session) fetch(ctx context.Context, name string, file wire.TransferData, offset int64, most time.Duration) *fetched {
	return &fetched{s: s, ctx: ctx, name: name, file: file, at: offset, patience: newPatience(most)}
}

// Read implements io.Reader.
func (f *fetched) Read(b []byte) (int, error) {
	if err := f.fill(); err != nil {
		return 0, err
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo: pieces are written as they came.
func (f *fetched) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		err := f.fill()
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		n, err := w.Write(f.rest)
		total += int64(n)
		if f.rest = f.rest[n:]; err != nil {
			return total, err
		}
	}
}

// Close ends what was asked for.
func (f *fetched) Close() error {
	f.halt()
	return nil
}

// halt takes back what was asked for and wasn't read.
func (f *fetched) halt() {
	if f.flight == nil {
		return
	}
	f.stop()
	for a := range f.flight {
		if a.err == nil {
			a.wait(f.asked)
			<-f.s.moving.fetching
		}
	}
	f.asking.Wait()
	f.flight = nil
}

// fill sees to it that there is something of a piece.
func (f *fetched) fill() error {
	for len(f.rest) == 0 {
		if f.done != nil {
			f.done()
			f.done = nil
		}
		if f.at == f.file.Size {
			return io.EOF
		}
		if f.flight == nil {
			f.begin()
		}
		a, more := <-f.flight
		if !more { // nothing is asked for any more
			return f.ctx.Err()
		}
		err := f.next(a)
		if err == nil {
			f.patience.progress()
			continue
		}
		f.halt()
		if err := f.patience.wait(f.ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// begin asks for all from at on, a few pieces ahead.
func (f *fetched) begin() {
	ctx, cancel := context.WithCancel(f.ctx)
	flight := make(chan ask, window)
	f.flight, f.asked, f.stop = flight, ctx, cancel
	at := f.at
	f.asking.Go(func() {
		defer close(flight)
		for at < f.file.Size {
			a := f.ask(ctx, at)
			at += a.length
			select {
			case flight <- a:
			case <-ctx.Done():
				if a.err == nil {
					a.wait(ctx)
					<-f.s.moving.fetching
				}
				return
			}
			if a.err != nil {
				return
			}
		}
	})
}

func (f *fetched) ask(ctx context.Context, at int64) ask {
	select {
	case f.s.moving.fetching <- struct{}{}:
	case <-ctx.Done():
		return ask{err: ctx.Err()}
	}
	a := ask{length: min(f.s.moving.size(), f.file.Size-at), since: time.Now()}
	r := wire.TransferRead{Path: f.name, Offset: at, Length: a.length, Version: f.file.Version}
	a.started, a.err = f.s.start(ctx, request{method: method(wire.TTransferRead), payload: r})
	if a.err != nil {
		<-f.s.moving.fetching
	}
	return a
}

// next takes the answer to a.
func (f *fetched) next(a ask) error {
	if a.err != nil {
		return a.err
	}
	env, reuse, err := a.wait(f.ctx)
	<-f.s.moving.fetching
	if err != nil {
		if errors.Is(err, wire.RequestTimeout) {
			f.s.moving.took(time.Hour)
		}
		return err
	}
	f.s.moving.took(time.Since(a.since))
	var d wire.TransferData
	if err := unreadable(wire.Decode(env.Payload, &d)); err != nil {
		return err
	}
	sum := sha256.Sum256(env.Data)
	switch {
	case d.Version != f.file.Version || int64(len(env.Data)) != a.length:
		return changedSource(f.name)
	case hex.EncodeToString(sum[:]) != d.SHA256:
		return wire.Errorf(wire.TransferMismatch, "a piece of %s at %d is not what was sent", f.name, f.at).With("path", f.name)
	}
	f.rest, f.done = env.Data, reuse
	f.at += a.length
	return nil
}

// Entries lists a directory, all of it, in the order of the names. A name that
// could lead out of it is an error: it comes from the machine.
func (s *Session) Entries(ctx context.Context, dir string) ([]wire.TransferEntry, error) {
	var all []wire.TransferEntry
	for after := ""; ; {
		var page wire.TransferEntries
		r := request{method: method(wire.TTransferList), payload: wire.TransferList{Path: dir, After: after}}
		if err := s.do(ctx, r, &page); err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			if e.Name <= after || !fs.ValidPath(e.Name) || e.Name == "." || path.Base(e.Name) != e.Name {
				return nil, wire.Errorf(wire.InternalError, "the machine lists %.64q in %s, which is no name for its place", e.Name, dir).With("path", dir)
			}
			after = e.Name
		}
		all = append(all, page.Entries...)
		if !page.More {
			return all, nil
		}
		if len(page.Entries) == 0 {
			return nil, wire.Errorf(wire.InternalError, "the machine says that more follows in %s, and what it is not", dir).With("path", dir)
		}
	}
}

// Make makes a directory or a link, or gives one that is there its mode and time.
func (s *Session) Make(ctx context.Context, m wire.TransferMake) error {
	return s.do(ctx, request{method: method(wire.TTransferMake), payload: m}, nil)
}

func octal(mode fs.FileMode) *string {
	text := fmt.Sprintf("%04o", mode.Perm())
	return &text
}
