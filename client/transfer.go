package client

import (
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"farhand/internal/backoff"
	"farhand/wire"
)

// Source is a file to be copied: of this machine (LocalSource), of another
// (Session.Source), or anything else that can be read from an offset on.
type Source struct {
	Size int64 // -1: not known before its end, and then it can be read only once
	// Key names this very content, so that what came of it earlier can be gone on
	// with; at most 128 characters. Empty: every copy begins anew.
	Key     string
	Mode    fs.FileMode // permission bits; with HasMode
	HasMode bool
	ModTime time.Time // zero: not known
	// Open reads from an offset on.
	Open func(ctx context.Context, offset int64) (io.ReadCloser, error)
	// Hash is the SHA-256 of a range of at most wire.TransferHashMost bytes. Nil:
	// the range is read.
	Hash func(ctx context.Context, offset, length int64) (string, error)
	// Check fails with wire.SourceChanged once the file is no longer the one whose
	// size and time stand above. Nil: it never changes.
	Check func(ctx context.Context) error
}

// PutOptions say how a file is copied. The zero value is the usual way.
type PutOptions struct {
	CreateParents bool // make missing directories
	UnlessSame    bool // don't copy what has the size and the time of a file that is there
	Tell          Progress
	// Patience is how long a transfer goes on without anything getting through,
	// while a link is lost or a program restarts: 2 min by default. A negative one
	// gives up at once.
	Patience time.Duration
}

// Sent is the outcome of a copy.
type Sent struct {
	Bytes   int64  // of the file
	Resumed int64  // of these, how many were there from an earlier attempt
	Same    bool   // nothing was sent: a file of this size and time was there
	SHA256  string // empty if not all of it was read here
}

const (
	// window is how many pieces of a session are under way each way: with 50 ms to
	// the machine and back, 20 MiB a second. It is what a device takes at once.
	window          = 4
	defaultPatience = 2 * time.Minute
	leastPiece      = 16 << 10
	// A piece that takes longer than slowPiece is followed by smaller ones, so that
	// four of them never come near the relay's 30 s.
	slowPiece  = 3 * time.Second
	quickPiece = time.Second
	// markEvery is how often the state of the hash is kept, for going on somewhere
	// before where it stands: 108 bytes each time.
	markEvery = 1 << 20
)

// transferring is what the transfers of a session share.
type transferring struct {
	sending  chan struct{} // a slot for each piece under way
	fetching chan struct{} // of its own: who copies within one machine waits for both
	piece    atomic.Int64  // size of the next piece; 0: the largest
}

func newTransferring() *transferring {
	return &transferring{sending: make(chan struct{}, window), fetching: make(chan struct{}, window)}
}

func (t *transferring) size() int64 {
	if n := t.piece.Load(); n != 0 {
		return n
	}
	return wire.TransferPiece
}

// took adapts the size of pieces to how long one was under way.
func (t *transferring) took(d time.Duration) {
	switch n := t.size(); {
	case d > slowPiece:
		t.piece.Store(max(n/2, leastPiece))
	case d < quickPiece && n < wire.TransferPiece:
		t.piece.Store(min(2*n, wire.TransferPiece))
	}
}

// Transfers says whether the machine takes files in pieces. Where it doesn't, Put
// and Source fall back to single requests with their limits, and trees can't be
// copied.
func (s *Session) Transfers() bool { return s.Info().Capabilities.Has(wire.Transfer) }

// Put copies a file to the machine. It takes its place in one step when all of it
// has come and its hash was compared. A lost link, a relay or a daemon that
// restarts are waited for (PutOptions.Patience) and gone on after; after any other
// failure, Put of the same source goes on where this one was.
//
// Failures beyond those of the device: wire.SourceChanged, and errors of reading
// the source.
func (s *Session) Put(ctx context.Context, path string, src Source, o PutOptions) (Sent, error) {
	if !s.Transfers() {
		return s.putWhole(ctx, path, src, o)
	}
	p := &put{s: s, path: path, src: src, o: o, patience: newPatience(o.Patience)}
	for {
		sent, err := p.attempt(ctx)
		if err == nil {
			return sent, nil
		}
		if err := p.patience.wait(ctx, err); err != nil {
			return sent, err
		}
	}
}

// put is one file on its way.
type put struct {
	s        *Session
	path     string
	src      Source
	o        PutOptions
	patience *patience

	marks   []mark // of the hash, ascending
	resumed int64
	again   bool // not the first attempt
}

// mark is the state of the hash of everything before an offset.
type mark struct {
	at    int64
	state []byte
}

func (p *put) attempt(ctx context.Context) (Sent, error) {
	open := wire.TransferOpen{
		Path: p.path, Key: p.src.Key, CreateParents: p.o.CreateParents,
		// The answer to a commit may have been lost.
		UnlessSame: p.o.UnlessSame || p.again && !p.src.ModTime.IsZero(),
	}
	if p.src.Size >= 0 {
		open.Size = &p.src.Size
	}
	if p.src.HasMode {
		mode := fmt.Sprintf("%04o", p.src.Mode.Perm())
		open.Mode = &mode
	}
	if !p.src.ModTime.IsZero() {
		ns := p.src.ModTime.UnixNano()
		open.MTimeNS = &ns
	}
	if p.src.Size >= 0 && p.src.Size <= p.s.moving.size() {
		return p.small(ctx, open)
	}
	var opened wire.TransferOpened
	if err := p.s.do(ctx, request{method: method(wire.TTransferOpen), payload: open}, &opened); err != nil {
		return Sent{}, err
	}
	if opened.Done {
		return p.same(), nil
	}
	if !p.again {
		p.resumed = opened.Offset
	}
	p.again = true
	sum, size, err := p.send(ctx, opened)
	if err == nil && p.src.Check != nil {
		err = p.src.Check(ctx)
	}
	if errors.Is(err, wire.SourceChanged) {
		p.abort(ctx, opened.Transfer) // or it is swept in a week
	}
	if err != nil {
		return Sent{}, err
	}
	commit := wire.TransferCommit{Transfer: opened.Transfer, SHA256: sum}
	var done wire.TransferCommitted
	if err := p.s.do(ctx, request{method: method(wire.TTransferCommit), payload: commit}, &done); err != nil {
		return Sent{}, err
	}
	return Sent{Bytes: size, Resumed: p.resumed, SHA256: sum}, nil
}

// same is the outcome if all of the file is there.
func (p *put) same() Sent {
	if p.o.Tell != nil {
		p.o.Tell(p.src.Size, p.src.Size)
	}
	return Sent{Bytes: p.src.Size, Same: !p.again}
}

// abort has the machine throw away what came.
func (p *put) abort(ctx context.Context, id string) {
	_ = p.s.do(ctx, request{method: method(wire.TTransferAbort), payload: wire.TransferAbort{Transfer: id}}, nil)
}

// small sends a file in one message.
func (p *put) small(ctx context.Context, open wire.TransferOpen) (Sent, error) {
	content := make([]byte, p.src.Size)
	r, err := p.src.Open(ctx, 0)
	if err != nil {
		return Sent{}, err
	}
	_, err = io.ReadFull(r, content)
	if err == nil {
		err = ended(r)
	}
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = changedSource(p.path)
	}
	if err == nil && p.src.Check != nil {
		err = p.src.Check(ctx)
	}
	if err != nil {
		return Sent{}, err
	}
	sum := sha256.Sum256(content)
	open.SHA256 = hex.EncodeToString(sum[:])
	var opened wire.TransferOpened
	err = p.s.do(ctx, request{method: method(wire.TTransferOpen), payload: &wire.Attached{Payload: open, Data: content}}, &opened)
	p.again = true
	if err != nil {
		return Sent{}, err
	}
	if p.o.Tell != nil {
		p.o.Tell(p.src.Size, p.src.Size)
	}
	return Sent{Bytes: p.src.Size, SHA256: open.SHA256}, nil
}

// ended fails if there is more than there should be.
func ended(r io.Reader) error {
	var one [1]byte
	if n, err := io.ReadFull(r, one[:]); n > 0 {
		return io.ErrUnexpectedEOF
	} else if err != io.EOF {
		return err
	}
	return nil
}

func changedSource(path string) error {
	return wire.Errorf(wire.SourceChanged, "%s changed while it was copied", path).With("path", path)
}

// block is a piece of the source, read and hashed.
type block struct {
	at   int64
	data []byte
	buf  []byte // what data lies in
}

// send sends what is missing of the file and returns the hash and the size of all
// of it.
func (p *put) send(ctx context.Context, opened wire.TransferOpened) (sum string, size int64, err error) {
	from, h := p.hashFrom(opened.Offset)
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel(nil)
	blocks, free := make(chan block), make(chan []byte, window+2)
	sent := make(chan flight, window)
	tasks.Go(func() { // reads and hashes
		defer close(blocks)
		n, err := p.read(ctx, from, opened.Offset, h, blocks, free)
		if size = n; err != nil {
			cancel(err)
		}
	})
	tasks.Go(func() { // takes the answers, in the order of the pieces
		for f := range sent {
			if err := p.landed(f); err != nil {
				cancel(err)
			}
		}
	})
	for b := range blocks {
		f, err := p.launch(ctx, opened.Transfer, b, free)
		if err != nil {
			cancel(err)
			continue // until the reader has seen it
		}
		sent <- f
	}
	close(sent)
	tasks.Wait()
	if err := context.Cause(ctx); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// hashFrom is the hash of the longest part of what comes before an offset that is
// known here, and where that ends.
func (p *put) hashFrom(offset int64) (int64, hash.Hash) {
	h := sha256.New()
	for _, m := range slices.Backward(p.marks) {
		if m.at <= offset && h.(encoding.BinaryUnmarshaler).UnmarshalBinary(m.state) == nil {
			return m.at, h
		}
	}
	return 0, h
}

// read reads the source from an offset on, hashes it, and passes on what lies
// behind skip. It returns the size of the source.
func (p *put) read(ctx context.Context, at, skip int64, h hash.Hash, blocks chan<- block, free chan []byte) (int64, error) {
	r, err := p.src.Open(ctx, at)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		var buf []byte
		select {
		case buf = <-free:
		default:
			buf = make([]byte, wire.TransferPiece)
		}
		want := p.s.moving.size()
		if at < skip {
			want = min(skip-at, wire.TransferPiece)
		}
		n, err := io.ReadFull(r, buf[:want])
		if n > 0 {
			h.Write(buf[:n]) // never fails
			b := block{at, buf[:n], buf}
			at += int64(n)
			p.mark(at, h)
			if b.at < skip {
				free <- buf // there is room for every one
			} else {
				select {
				case blocks <- b:
				case <-ctx.Done():
					return at, nil // the cause is told
				}
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			if p.src.Size >= 0 && at != p.src.Size {
				return at, changedSource(p.path)
			}
			return at, nil
		case err != nil:
			return at, err
		case p.src.Size >= 0 && at > p.src.Size:
			return at, changedSource(p.path)
		}
	}
}

// mark keeps the state of the hash now and then.
func (p *put) mark(at int64, h hash.Hash) {
	if n := len(p.marks); n > 0 && at-p.marks[n-1].at < markEvery || at < markEvery {
		return
	}
	if state, err := h.(encoding.BinaryMarshaler).MarshalBinary(); err == nil {
		p.marks = append(p.marks, mark{at, state})
	}
}

// flight is a piece under way.
type flight struct {
	*started
	since time.Time
	end   int64 // the offset behind it
	ctx   context.Context
}

// started is a request that was sent in the order of the calls of start, once and
// over one link: whoever uses it knows what to do when that is lost.
type started struct {
	*pending
	sock   *socket
	method wire.Method
}

// start sends r. wait must be called.
func (s *Session) start(ctx context.Context, r request) (*started, error) {
	r.session, r.timeout = s.Info().ID, requestTimeout
	sock := s.client.sock
	if err := sock.enter(ctx); err != nil {
		return nil, err
	}
	p, err := sock.begin(ctx, r)
	if err != nil {
		sock.leave()
		return nil, err
	}
	return &started{p, sock, r.method}, nil
}

// wait waits for the answer. reuse gives its memory back.
func (f *started) wait(ctx context.Context) (wire.Envelope, func(), error) {
	defer f.sock.leave()
	a, err := f.pending.wait(ctx)
	if err == nil {
		_, err = payloadOf(a.Envelope, f.method)
	}
	return a.Envelope, func() { f.conn.link.Reuse(a.frame) }, unanswered(err, f.method)
}

// launch sends one piece once there is room for it.
func (p *put) launch(ctx context.Context, id string, b block, free chan []byte) (flight, error) {
	select {
	case p.s.moving.sending <- struct{}{}:
	case <-ctx.Done():
		return flight{}, context.Cause(ctx)
	}
	data := &wire.Attached{Payload: wire.TransferChunk{Transfer: id, Offset: b.at}, Data: b.data, Done: func() {
		select {
		case free <- b.buf:
		default: // a piece that was given up on leaves one too many
		}
	}}
	f := flight{since: time.Now(), end: b.at + int64(len(b.data)), ctx: ctx}
	var err error
	if f.started, err = p.s.start(ctx, request{method: method(wire.TTransferChunk), payload: data}); err != nil {
		<-p.s.moving.sending
	}
	return f, err
}

// landed waits for the answer to a piece.
func (p *put) landed(f flight) error {
	_, _, err := f.wait(f.ctx)
	<-p.s.moving.sending
	if err != nil {
		if errors.Is(err, wire.RequestTimeout) {
			p.s.moving.took(time.Hour)
		}
		return err
	}
	p.s.moving.took(time.Since(f.since))
	p.patience.progress()
	if p.o.Tell != nil {
		p.o.Tell(f.end, p.src.Size)
	}
	return nil
}

// patience decides which failures are waited out, and for how long.
type patience struct {
	most    time.Duration
	backoff backoff.Backoff
	last    atomic.Int64 // unix nanoseconds: when something last got through
	odd     int          // failures in a row that usually don't come twice
}

func newPatience(most time.Duration) *patience {
	if most == 0 {
		most = defaultPatience
	}
	p := &patience{most: most, backoff: backoff.Backoff{Base: 200 * time.Millisecond, Max: 10 * time.Second, Jitter: 200 * time.Millisecond}}
	p.progress()
	return p
}

// progress says that something got through. Any goroutine may call it.
func (p *patience) progress() { p.last.Store(time.Now().UnixNano()) }

// maxOdd is how often in a row a transfer may be told that it isn't where it thought.
const maxOdd = 3

// wait returns nil when it is time for another attempt, else the error to fail with.
func (p *patience) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	since := time.Since(time.Unix(0, p.last.Load()))
	var lost *lostError
	switch code := wire.CodeOf(err); code {
	case wire.MachineUnreachable, wire.RequestTimeout, wire.OpUnconfirmed, wire.ShimOverloaded, wire.SessionNotFound,
		wire.SessionNotAttached, wire.HardwareBusy:
	case wire.TransferNotFound, wire.TransferOffset, wire.TransferMismatch:
		if p.odd++; p.odd > maxOdd {
			return err
		}
	default:
		reason, _ := wire.AsError(err).Details["reason"].(string)
		stopping := code == wire.InternalError && (reason == "stopping" || reason == "closed")
		if !stopping && !relayAway(err) && !errors.As(err, &lost) {
			return err
		}
	}
	if since > p.most {
		return err
	}
	pause := time.NewTimer(p.backoff.Next())
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// putWhole copies a file by FILE_WRITE, which has to hold all of it.
func (s *Session) putWhole(ctx context.Context, path string, src Source, o PutOptions) (Sent, error) {
	if src.Size > wire.MaxBinary {
		return Sent{}, TooLarge(path, src.Size, wire.MaxBinary)
	}
	r, err := src.Open(ctx, 0)
	if err != nil {
		return Sent{}, err
	}
	content, err := io.ReadAll(io.LimitReader(r, wire.MaxBinary+1))
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if err == nil && src.Check != nil {
		err = src.Check(ctx)
	}
	if err == nil {
		err = s.Write(ctx, path, content, o.CreateParents, o.Tell)
	}
	if err != nil {
		return Sent{}, err
	}
	sum := sha256.Sum256(content)
	return Sent{Bytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}, nil
}
