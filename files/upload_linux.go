package files

import (
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Bounds of uploads. They are documented with the messages (docs/extensions.md).
const (
	maxUploads        = 64
	maxSessionUploads = 16
	maxUploadKey      = 128
	uploadIdle        = 2 * time.Minute
	// checkpointBytes is how much may come again after the daemon was killed, and
	// half of what lies in memory on its way to the disk.
	checkpointBytes = 16 << 20
)

// UploadOptions say how uploads are kept.
type UploadOptions struct {
	// Dir is where it is written down how far each unfinished one has come. It is
	// made if it isn't there.
	Dir string
	// Idle is how long an upload stays open without a chunk: 2 min by default.
	Idle time.Duration
	Log  *slog.Logger
}

// Uploads are the files of a machine that arrive in pieces, of all sessions. All
// methods may be called at the same time.
//
// What has come of a file lies beside its destination, locked (flock(2)) while
// the upload is open. Every 16 MiB it is synced and its length written down with
// the state of its hash, in this order, so that an upload goes on after a crash
// or a power cut with what is surely on the disk, and nothing is read twice.
type Uploads struct {
	opt  UploadOptions
	work sync.WaitGroup // checkpoints and ends by idleness

	mu     sync.Mutex
	open   map[string]*upload
	closed bool
}

// Uploader is on whose behalf a file is uploaded.
type Uploader struct {
	Session string
	Holder  string // what is left of an upload is found again by the same holder
	// Hold is called when an upload is opened, and what it returns when it is
	// closed: a session with an upload isn't idle.
	Hold func() (release func())
}

// upload is one open upload.
type upload struct {
	id      string // empty: it can't be found again
	session string // guarded by Uploads.mu

	mu      sync.Mutex // what follows; held while a chunk is written
	asked   asked
	dir     handle // of the destination
	name    string // of the destination
	path    string // canonical
	temp    *temp
	size    int64 // -1: not known
	got     int64
	sum     hash.Hash
	mode    *uint32
	mtime   *int64
	saved   int64      // of the newest checkpoint
	saving  chan error // brings its outcome; nil without one
	broken  error      // what one failed with
	release func()
	idle    *time.Timer
	ended   bool
}

// NewUploads prepares the directory.
func NewUploads(o UploadOptions) (*Uploads, error) {
	if o.Idle <= 0 {
		o.Idle = uploadIdle
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	return &Uploads{opt: o, open: make(map[string]*upload)}, nil
}

// Open answers TRANSFER_OPEN. data is what is attached.
//
// Failures: those of Write, INVALID_ARGUMENT, TRANSFER_MISMATCH (attached content
// that has another hash) and SHIM_OVERLOADED (too many are open).
func (u *Uploads) Open(ctx context.Context, r *Root, by Uploader, req wire.TransferOpen, data []byte) (wire.TransferOpened, Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	w, err := wanted(a, req, data)
	if err != nil {
		return wire.TransferOpened{}, trace, err
	}
	var answer wire.TransferOpened
	err = r.on(ctx, a, "write", true, &trace.Path, func(p *place) error {
		switch {
		case p.private():
			return r.isPrivate(a)
		case p.exists && kindOf(&p.st) != unix.S_IFREG:
			return notRegular(a, &p.st)
		case p.exists && req.UnlessSame && w.same(&p.st):
			answer = wire.TransferOpened{Offset: w.size, Done: true}
			return r.touch(p, w)
		case !p.exists && (p.why != "" || len(p.missing) > 1 && !req.CreateParents):
			return missing(a, p)
		}
		dir, made, err := r.directoryOf(p)
		if err != nil {
			return err
		}
		defer dir.close()
		if w.whole {
			err = r.place(ctx, a, p, dir, w, data)
			answer = wire.TransferOpened{Offset: w.size, Done: true}
		} else {
			answer, err = u.begin(a, r, by, p, dir, w)
		}
		if err != nil {
			made.undo()
		}
		made.close()
		if err == unix.EINVAL { // as FAT says to some characters
			return badName(a)
		}
		return err
	})
	if err != nil {
		return wire.TransferOpened{}, trace, err
	}
	if w.whole {
		trace.Bytes = w.size
	}
	return answer, trace, nil
}

// incoming is what TRANSFER_OPEN asks for, checked.
type incoming struct {
	size  int64 // -1: not known
	key   string
	mode  *uint32
	mtime *int64
	whole bool // all of it is attached
}

func wanted(a asked, req wire.TransferOpen, data []byte) (incoming, error) {
	invalid := func(field, format string, args ...any) (incoming, error) {
		return incoming{}, a.fail(wire.InvalidArgument, "", format, args...).With("field", field)
	}
	w := incoming{size: -1, key: req.Key, mtime: req.MTimeNS}
	if req.Size != nil {
		if w.size = *req.Size; w.size < 0 {
			return invalid("size", "size %d is negative; null says that it isn't known", w.size)
		}
	}
	if len(req.Key) > maxUploadKey {
		return invalid("key", "key has %d characters of at most %d", len(req.Key), maxUploadKey)
	}
	mode, err := permissions(req.Mode)
	if err != nil {
		return invalid("mode", "mode %q is no octal number from 0 to 0777", *req.Mode)
	}
	w.mode = mode
	if req.SHA256 == "" && len(data) == 0 {
		return w, nil
	}
	w.whole = true
	switch sum := sha256.Sum256(data); {
	case w.size != int64(len(data)) || len(data) > wire.TransferPiece:
		return invalid("size", "size is not that of what is attached, %d, or that is more than %d", len(data), wire.TransferPiece)
	case !strings.EqualFold(req.SHA256, hex.EncodeToString(sum[:])):
		return w, mismatch(a, sum[:], req.SHA256)
	}
	return w, nil
}

func mismatch(a asked, sum []byte, wanted string) *wire.Error {
	return a.fail(wire.TransferMismatch, "", "what came of %s is not what was sent, and was thrown away", a.shown()).
		With("sha256", hex.EncodeToString(sum)).With("wanted", clipped(wanted)).With("hint", "send it again")
}

// clipped bounds what comes back of a peer's own text.
func clipped(s string) string { return shown(s[:min(len(s), 2*sha256.Size)]) }

// permissions reads a mode; nil stays nil.
func permissions(text *string) (*uint32, error) {
	if text == nil {
		return nil, nil
	}
	n, err := strconv.ParseUint(*text, 8, 32)
	mode := uint32(n)
	if err == nil && n > 0o7777 {
		err = strconv.ErrRange
	}
	mode &= 0o777 // whoever runs the file gets nobody else's rights by it
	return &mode, err
}

// same says whether a file is, to all appearances, what would be sent.
func (w *incoming) same(st *unix.Stat_t) bool {
	return w.mtime != nil && st.Size == w.size && st.Mtim.Nano() == *w.mtime
}

// touch gives a file that stays the mode that is wanted, if that may be done.
func (r *Root) touch(p *place, w incoming) error {
	if w.mode == nil || p.st.Mode&0o777 == *w.mode {
		return nil
	}
	fd, err := r.reopen(p, unix.O_RDONLY)
	if errors.Is(err, errRaced) {
		return err
	}
	if err == nil {
		_ = setMode(fd, p.dir.fd, *w.mode)
		unix.Close(fd)
	}
	return nil
}

// directoryOf opens the directory that a file is to lie in and makes it, if it is
// missing.
func (r *Root) directoryOf(p *place) (handle, made, error) {
	if p.exists || len(p.missing) == 1 {
		dir, err := p.dir.down(".")
		return dir, made{}, err
	}
	return r.makeBelow(p.dir, p.missing[:len(p.missing)-1])
}

// place makes or replaces a small file at once.
func (r *Root) place(ctx context.Context, a asked, p *place, dir handle, w incoming, data []byte) error {
	put := func(named bool) error {
		t, err := newTemp(dir.fd, firstMode(p, w), named)
		if err != nil {
			return err
		}
		defer t.discard()
		if err := pwriteAll(t.fd, data, 0); err != nil {
			return err
		}
		if err := r.dress(t.fd, p, dir, w.mode, w.mtime); err != nil {
			return err
		}
		return t.commit(lastName(p), true)
	}
	err := room(a, dir.fd, int64(len(data)))
	if err == nil {
		err = put(false)
	}
	if err == unix.ENOENT { // no /proc to name a nameless file by
		err = put(true)
	}
	if err == nil {
		syncDir(dir.fd)
	}
	return err
}

// firstMode is the mode of a file until all of it has come: nobody reads what the
// file in whose place it comes would not let them read.
func firstMode(p *place, w incoming) uint32 {
	if p.exists || w.mode != nil {
		return 0o600
	}
	return 0o666
}

func lastName(p *place) string {
	if p.exists {
		return p.name
	}
	return p.missing[len(p.missing)-1]
}

// dress gives a new file what the one in its place has, as far as that may be
// done, then the mode and the time that were asked for.
func (r *Root) dress(fd int, p *place, dir handle, mode *uint32, mtime *int64) error {
	if p.exists {
		old, err := r.reopen(p, unix.O_RDONLY)
		if errors.Is(err, errRaced) {
			return err
		}
		if err == nil {
			err = inherit(fd, old, &p.st)
			unix.Close(old)
		}
		if err != nil && mode == nil { // owner and attributes are ours to leave behind, the mode isn't
			err = retry(func() error { return unix.Fchmod(fd, keptMode(p.st.Mode)) })
			if err != nil {
				return err
			}
		}
	}
	if mode != nil {
		if err := setMode(fd, dir.fd, *mode); err != nil {
			return err
		}
	}
	if mtime != nil {
		return setTime(fd, *mtime)
	}
	return nil
}

// setMode sets the permission bits of what lies in dir. In a directory that a
// group shares (set-group-id) the group gets what the owner has.
func setMode(fd, dir int, mode uint32) error {
	if st, err := fstat(dir); err == nil && st.Mode&unix.S_ISGID != 0 {
		mode |= mode >> 3 & 0o070
	}
	return retry(func() error { return unix.Fchmod(fd, mode) })
}

// setTime sets the time of the last change of the content.
func setTime(fd int, ns int64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(ns)}
	return retry(func() error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times, 0)
	})
}

// room says DISK_FULL unless n bytes more fit on the disk of fd, without what is
// reserved there: that is for the daemon's own needs.
func room(a asked, fd int, n int64) error {
	var fs unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(fd, &fs) })
	if err != nil || fs.Blocks == 0 { // a file system that doesn't tell
		return nil
	}
	there := int64(fs.Bavail) * fs.Bsize
	if n < there || n == 0 && there > 0 {
		return nil
	}
	return a.fail(wire.DiskFull, "", "no room for %s: %d bytes are to come and %d are free", a.shown(), n, there).
		With("needed_bytes", n).With("available_bytes", there)
}

// begin opens an upload or goes on with one.
func (u *Uploads) begin(a asked, r *Root, by Uploader, p *place, dir handle, w incoming) (wire.TransferOpened, error) {
	path := p.path(r)
	id := uploadID(by.Holder, path, w)
	for {
		up, mine, err := u.claim(id, by)
		if err != nil {
			return wire.TransferOpened{}, err
		}
		if !mine {
			up.mu.Lock()
		}
		answer, again, err := u.join(up, mine, a, path, by, p, dir, w)
		if !again {
			return answer, err
		}
	}
}

// join opens an upload that was claimed, or goes on with it; again says that it is
// to be claimed anew. It is called with the upload locked, and unlocks it.
func (u *Uploads) join(up *upload, mine bool, a asked, path string, by Uploader, p *place, dir handle, w incoming) (_ wire.TransferOpened, again bool, err error) {
	defer up.mu.Unlock()
	switch {
	case up.ended: // between finding and locking it
		return wire.TransferOpened{}, true, nil
	case !mine && up.dir.id != dir.id: // that was another directory of this name
		u.discard(up)
		return wire.TransferOpened{}, true, nil
	case mine:
		up.asked, up.path, up.name, up.size = a, path, lastName(p), w.size
		if err := u.prepare(up, p, dir, w); err != nil {
			up.ended = true
			u.forget(up)
			return wire.TransferOpened{}, false, err
		}
	default:
		up.release()
	}
	up.mode, up.mtime, up.release = w.mode, w.mtime, by.Hold()
	up.idle.Reset(u.opt.Idle)
	return wire.TransferOpened{Transfer: up.id, Offset: up.got}, false, nil
}

// uploadID finds an upload again; one without a key never is.
func uploadID(holder, path string, w incoming) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %q", holder, path, w.size, w.key)
	if w.key == "" {
		h.Reset()
		h.Write([]byte(tempName()))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// claim finds the open upload with this id, now of another session perhaps, or
// adds one that is mine to prepare: it is locked, since others find it from now on
// and there is nothing in it yet.
func (u *Uploads) claim(id string, by Uploader) (up *upload, mine bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, false, wire.Errorf(wire.InternalError, "the daemon is stopping").With("reason", "closed")
	}
	if up := u.open[id]; up != nil {
		up.session = by.Session
		return up, false, nil
	}
	mineOpen := 0
	for _, other := range u.open {
		if other.session == by.Session {
			mineOpen++
		}
	}
	if mineOpen >= maxSessionUploads || len(u.open) >= maxUploads {
		return nil, false, wire.Errorf(wire.ShimOverloaded, "too many transfers are open: %d here, %d in all", mineOpen, len(u.open)).
			With("reason", "too_many_transfers").With("hint", "finish one, or wait for it")
	}
	up = &upload{id: id, session: by.Session, release: func() {}}
	up.mu.Lock() // nobody else knows it: there is nothing to wait for
	up.idle = time.AfterFunc(time.Hour, func() { u.expire(up) })
	u.open[id] = up
	return up, true, nil
}

// prepare makes the file, or opens what is left of it.
func (u *Uploads) prepare(up *upload, p *place, dir handle, w incoming) error {
	own, err := dir.down(".")
	if err != nil {
		return err
	}
	up.dir, up.sum = own, sha256.New()
	if w.key == "" {
		up.temp, err = newTemp(up.dir.fd, firstMode(p, w), true)
	} else if up.temp, err = u.resume(up); err == nil && up.temp == nil {
		up.temp, err = newPart(up.dir.fd, up.id, firstMode(p, w))
	}
	if err != nil {
		up.dir.close()
		return err
	}
	if err = room(up.asked, up.temp.fd, max(up.size-up.got, 0)); err != nil {
		if up.got == 0 {
			up.temp.discard()
		} else {
			unix.Close(up.temp.fd)
		}
		up.dir.close()
	}
	return err
}

// resume opens what is left of an upload, cut to what is known of it; nil if that
// isn't much.
func (u *Uploads) resume(up *upload) (*temp, error) {
	rec, ok := u.load(up.id)
	if !ok {
		return nil, nil
	}
	name := partName(up.id)
	fd, err := openat(up.dir.fd, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil // gone, or no longer ours: it is made anew
	}
	st, err := fstat(fd)
	fits := err == nil && kindOf(&st) == unix.S_IFREG && st.Nlink == 1 && st.Ino == rec.Inode && st.Size >= rec.Offset &&
		up.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(rec.Sum) == nil &&
		retry(func() error { return unix.Ftruncate(fd, rec.Offset) }) == nil
	if !fits {
		unix.Close(fd)
		up.sum.Reset()
		return nil, nil
	}
	up.got, up.saved = rec.Offset, rec.Offset
	return lock(&temp{dir: up.dir.fd, fd: fd, name: name}), nil
}

// find is the open upload of a session, locked.
func (u *Uploads) find(session, id string) (*upload, error) {
	u.mu.Lock()
	up := u.open[id]
	if up != nil && up.session != session {
		up = nil
	}
	u.mu.Unlock()
	if up != nil {
		up.mu.Lock()
		if !up.ended {
			return up, nil
		}
		up.mu.Unlock()
	}
	return nil, wire.Errorf(wire.TransferNotFound, "no such transfer is open in this session").
		With("transfer", clipped(id)).With("hint", "open it again: it goes on where it was")
}

// Write answers TRANSFER_CHUNK. Chunks must come in their order: it waits for
// none.
//
// Failures: TRANSFER_NOT_FOUND, TRANSFER_OFFSET, INVALID_ARGUMENT, DISK_FULL
// (what came before stays), and other failures of the disk.
func (u *Uploads) Write(ctx context.Context, session string, req wire.TransferChunk, data []byte) error {
	up, err := u.find(session, req.Transfer)
	if err != nil {
		return err
	}
	defer up.mu.Unlock()
	up.idle.Reset(u.opt.Idle)
	end := req.Offset + int64(len(data))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(data) == 0, len(data) > wire.TransferPiece, req.Offset < 0, end < 0:
		return up.asked.fail(wire.InvalidArgument, "", "a chunk has 1 to %d bytes from 0 on", wire.TransferPiece).With("field", "offset")
	case up.size >= 0 && end > up.size:
		return up.asked.fail(wire.InvalidArgument, "", "a chunk ends at %d, and the file at %d", end, up.size).With("field", "offset")
	case req.Offset > up.got:
		return up.misplaced()
	case end <= up.got:
		return nil
	}
	data = data[up.got-req.Offset:]
	if err := up.add(data); err != nil {
		return fault(up.asked, "write", err)
	}
	if up.got-up.saved < checkpointBytes {
		return nil
	}
	if err := up.settle(); err != nil {
		return fault(up.asked, "write", err)
	}
	u.checkpoint(up)
	return room(up.asked, up.temp.fd, 0)
}

// misplaced says what is wanted next.
func (up *upload) misplaced() error {
	return up.asked.fail(wire.TransferOffset, "", "byte %d of %s is wanted next", up.got, up.asked.shown()).
		With("transfer", up.id).With("offset", up.got)
}

func (up *upload) add(data []byte) error {
	if err := pwriteAll(up.temp.fd, data, up.got); err != nil {
		return err
	}
	up.sum.Write(data) // never fails
	up.got += int64(len(data))
	return nil
}

// checkpoint syncs what has come and writes down how much that is, while more
// comes. The one before is over. Called with the upload locked.
func (u *Uploads) checkpoint(up *upload) {
	rec, fd, done := up.record(), up.temp.fd, make(chan error, 1)
	up.saved, up.saving = up.got, done
	u.work.Go(func() { done <- u.save(rec, fd) })
}

// settle waits for the checkpoint under way. Called with the upload locked.
func (up *upload) settle() error {
	if up.saving != nil {
		if err := <-up.saving; up.broken == nil {
			up.broken = err
		}
		up.saving = nil
	}
	return up.broken
}

// Commit answers TRANSFER_COMMIT: the file takes its place. The path is walked
// anew; what was sent stays if it no longer leads where it did.
//
// Failures: TRANSFER_NOT_FOUND, TRANSFER_OFFSET (not all has come),
// TRANSFER_MISMATCH, and those of Write.
func (u *Uploads) Commit(ctx context.Context, r *Root, session string, req wire.TransferCommit) (wire.TransferCommitted, Trace, error) {
	// The root first, as Open has them: Root.Close keeps out who comes to it while
	// another is in it and waits for the upload.
	if err := r.enter(ctx); err != nil {
		return wire.TransferCommitted{}, Trace{}, fmt.Errorf("finish a transfer: %w", err)
	}
	defer r.leave()
	up, err := u.find(session, req.Transfer)
	if err != nil {
		return wire.TransferCommitted{}, Trace{}, err
	}
	defer up.mu.Unlock()
	trace := Trace{Path: up.path}
	up.idle.Reset(u.opt.Idle)
	if up.size >= 0 && up.got != up.size {
		return wire.TransferCommitted{}, trace, up.misplaced()
	}
	if sum := up.sum.Sum(nil); !strings.EqualFold(req.SHA256, hex.EncodeToString(sum)) {
		u.discard(up)
		return wire.TransferCommitted{}, trace, mismatch(up.asked, sum, req.SHA256)
	}
	if err := up.settle(); err != nil {
		u.discard(up)
		return wire.TransferCommitted{}, trace, fault(up.asked, "write", err)
	}
	err = untilStill(func() error {
		p, err := r.resolve(ctx, up.asked, true)
		if err != nil {
			return err
		}
		defer p.close()
		switch {
		case p.private():
			return r.isPrivate(up.asked)
		case p.exists && kindOf(&p.st) != unix.S_IFREG:
			return notRegular(up.asked, &p.st)
		case p.dir.id != up.dir.id || lastName(&p) != up.name || !p.exists && len(p.missing) != 1:
			return up.asked.fail(wire.PathNotFound, "moved", "the directory of %s is no longer where it was", up.asked.shown())
		}
		if err := r.dress(up.temp.fd, &p, up.dir, up.mode, up.mtime); err != nil {
			return err
		}
		return up.temp.commit(up.name, true)
	})
	if err != nil {
		return wire.TransferCommitted{}, trace, fault(up.asked, "write", err)
	}
	syncDir(up.dir.fd)
	trace.Bytes = up.got
	u.end(up, true)
	return wire.TransferCommitted{Path: up.path, Size: up.got}, trace, nil
}

// Abort answers TRANSFER_ABORT: what came is thrown away. That there is no such
// upload is no error.
func (u *Uploads) Abort(session string, req wire.TransferAbort) (Trace, error) {
	up, err := u.find(session, req.Transfer)
	if err != nil {
		return Trace{}, nil
	}
	defer up.mu.Unlock()
	u.discard(up)
	return Trace{Path: up.path, Bytes: up.got}, nil
}

// EndSession closes the uploads of a session. They can go on in another.
func (u *Uploads) EndSession(session string) {
	u.endWhere(func(up *upload) bool { return up.session == session })
}

// Close closes all uploads and waits for what is on its way to the disk.
func (u *Uploads) Close() error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.endWhere(func(*upload) bool { return true })
	u.work.Wait()
	return nil
}

// endWhere closes those that match; match is called with u locked.
func (u *Uploads) endWhere(match func(*upload) bool) {
	var all []*upload
	u.mu.Lock()
	for _, up := range u.open {
		if match(up) {
			all = append(all, up)
		}
	}
	u.mu.Unlock()
	for _, up := range all {
		up.mu.Lock()
		if !up.ended {
			u.park(up)
		}
		up.mu.Unlock()
	}
}

// expire closes an upload to which nothing comes any more.
func (u *Uploads) expire(up *upload) {
	u.mu.Lock()
	if u.closed { // Close does it
		u.mu.Unlock()
		return
	}
	u.work.Add(1)
	defer u.work.Done()
	u.mu.Unlock()
	up.mu.Lock()
	defer up.mu.Unlock()
	if !up.ended {
		u.park(up)
	}
}

// The functions below are called with the upload locked.

// park closes an upload in a way that it can go on.
func (u *Uploads) park(up *upload) {
	if err := up.settle(); err == nil && up.temp.part() && up.got > 0 {
		err := u.save(up.record(), up.temp.fd)
		if err == nil {
			u.end(up, false)
			return
		}
		u.opt.Log.Warn("an unfinished transfer can't be kept", "error", err)
	}
	u.discard(up)
}

// discard throws away what came.
func (u *Uploads) discard(up *upload) {
	_ = up.settle()
	if up.temp.name != "" {
		_ = unlinkat(up.temp.dir, up.temp.name, 0)
	}
	u.end(up, true)
}

// end closes the upload's descriptors; with done, nothing is left of it.
func (u *Uploads) end(up *upload, done bool) {
	if done {
		u.remove(up.id)
	}
	unix.Close(up.temp.fd)
	up.dir.close()
	up.ended = true
	up.release()
	u.forget(up)
}

func (u *Uploads) forget(up *upload) {
	up.idle.Stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[up.id] == up {
		delete(u.open, up.id)
	}
}
