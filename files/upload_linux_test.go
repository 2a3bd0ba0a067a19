package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// uploads is a bench with uploads, and how many sessions are held by them.
type uploads struct {
	*bench
	*Uploads
	state string
	held  atomic.Int64
}

func newUploads(t testing.TB) *uploads {
	b := &uploads{bench: newBench(t)}
	b.state = t.TempDir()
	b.restart()
	t.Cleanup(func() {
		b.must(b.Uploads.Close())
		if n := b.held.Load(); n != 0 {
			t.Errorf("%d sessions are still held", n)
		}
	})
	return b
}

// restart is a daemon that stops and another that starts.
func (b *uploads) restart() {
	b.t.Helper()
	if b.Uploads != nil {
		b.must(b.Uploads.Close())
	}
	var err error
	b.Uploads, err = NewUploads(UploadOptions{Dir: b.state})
	b.must(err)
}

func (b *uploads) by(session string) Uploader {
	return Uploader{Session: session, Holder: "somebody", Hold: func() func() {
		b.held.Add(1)
		return func() { b.held.Add(-1) }
	}}
}

// begin opens an upload that the test expects to open.
func (b *uploads) begin(session string, req wire.TransferOpen) wire.TransferOpened {
	b.t.Helper()
	answer, _, err := b.Uploads.Open(b.ctx, b.Root, b.by(session), req, nil)
	if err != nil {
		b.t.Fatalf("open %s: %v", req.Path, err)
	}
	return answer
}

func (b *uploads) chunk(session, id string, off int64, data []byte) error {
	return b.Uploads.Write(b.ctx, session, wire.TransferChunk{Transfer: id, Offset: off}, data)
}

func (b *uploads) commit(session, id string, content []byte) error {
	_, _, err := b.Uploads.Commit(b.ctx, b.Root, session, wire.TransferCommit{Transfer: id, SHA256: digest(content)})
	return err
}

// send sends content from an offset on.
func (b *uploads) send(session, id string, content []byte, from int64) {
	b.t.Helper()
	for off := from; off < int64(len(content)); off += wire.TransferPiece {
		b.must(b.chunk(session, id, off, content[off:min(off+wire.TransferPiece, int64(len(content)))]))
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

func ptr[T any](v T) *T { return &v }

// nothing checks that no unfinished file is left.
func (b *uploads) nothing() {
	b.t.Helper()
	for _, e := range must(os.ReadDir(b.dir)) {
		if isTempName(e.Name()) || isPartName(e.Name()) {
			b.t.Errorf("left behind: %s", e.Name())
		}
	}
	if left := must(os.ReadDir(b.state)); len(left) != 0 {
		b.t.Errorf("%d records left behind", len(left))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestUpload(t *testing.T) {
	b := newUploads(t)
	content := noise(1, 3*wire.TransferPiece+17)
	when := time.Date(2001, 2, 3, 4, 5, 6, 789012345, time.UTC)
	up := b.begin("s", wire.TransferOpen{
		Path: "a/b/big", Size: ptr(int64(len(content))), Key: "k", Mode: ptr("0751"), MTimeNS: ptr(when.UnixNano()), CreateParents: true,
	})
	if up.Offset != 0 || up.Done || b.held.Load() != 1 {
		t.Fatalf("%+v, held %d", up, b.held.Load())
	}
	b.gone("a/b/big")
	b.send("s", up.Transfer, content, 0)
	b.gone("a/b/big")
	b.must(b.commit("s", up.Transfer, content))
	b.has("a/b/big", string(content))
	info := must(os.Stat(b.in("a/b/big")))
	if info.Mode().Perm() != 0o751 || !info.ModTime().Equal(when) {
		t.Errorf("mode %v, time %v", info.Mode(), info.ModTime())
	}
	want(t, b.chunk("s", up.Transfer, 0, content[:1]), wire.TransferNotFound)
	want(t, b.commit("s", up.Transfer, content), wire.TransferNotFound)
	b.nothing()
	b.untouched()
}

// Pieces come twice, overlap and leave gaps.
func TestUploadOffsets(t *testing.T) {
	b := newUploads(t)
	content := noise(2, 1000)
	up := b.begin("s", wire.TransferOpen{Path: "f", Size: ptr(int64(1000)), Key: "k"})
	b.must(b.chunk("s", up.Transfer, 0, content[:400]))
	b.must(b.chunk("s", up.Transfer, 0, content[:400]))
	b.must(b.chunk("s", up.Transfer, 100, content[100:500]))
	err := b.chunk("s", up.Transfer, 501, content[501:])
	want(t, err, wire.TransferOffset)
	if at := wire.AsError(err).Details["offset"]; at != int64(500) {
		t.Errorf("wanted next: %v", at)
	}
	want(t, b.commit("s", up.Transfer, content), wire.TransferOffset)
	for name, bad := range map[string]error{
		"too much":   b.chunk("s", up.Transfer, 500, make([]byte, 501)),
		"nothing":    b.chunk("s", up.Transfer, 500, nil),
		"before all": b.chunk("s", up.Transfer, -1, content[:1]),
		"a large":    b.chunk("s", up.Transfer, 500, make([]byte, wire.TransferPiece+1)),
		"overflow":   b.chunk("s", up.Transfer, 1<<63-1, content[:2]),
	} {
		if wire.CodeOf(bad) != wire.InvalidArgument {
			t.Errorf("%s: %v", name, bad)
		}
	}
	b.must(b.chunk("s", up.Transfer, 500, content[500:]))
	b.must(b.commit("s", up.Transfer, content))
	b.has("f", string(content))
}

// What was closed goes on where it was: by its session's end, by the daemon's, and
// by being taken over.
func TestUploadGoesOn(t *testing.T) {
	b := newUploads(t)
	content := noise(3, 5*wire.TransferPiece)
	req := wire.TransferOpen{Path: "f", Size: ptr(int64(len(content))), Key: "k"}
	up := b.begin("one", req)
	b.must(b.chunk("one", up.Transfer, 0, content[:wire.TransferPiece]))

	taken := b.begin("two", req)
	if taken.Transfer != up.Transfer || taken.Offset != wire.TransferPiece {
		t.Fatalf("taken over: %+v", taken)
	}
	want(t, b.chunk("one", up.Transfer, wire.TransferPiece, content[:1]), wire.TransferNotFound)
	b.must(b.chunk("two", up.Transfer, wire.TransferPiece, content[wire.TransferPiece:2*wire.TransferPiece]))
	b.EndSession("one") // whose it no longer is
	b.must(b.chunk("two", up.Transfer, 2*wire.TransferPiece, content[2*wire.TransferPiece:3*wire.TransferPiece]))
	b.EndSession("two")
	if b.held.Load() != 0 {
		t.Errorf("%d sessions held", b.held.Load())
	}
	want(t, b.chunk("two", up.Transfer, 3*wire.TransferPiece, content[:1]), wire.TransferNotFound)

	if again := b.begin("three", req); again.Offset != 3*wire.TransferPiece {
		t.Fatalf("after the session's end: %+v", again)
	}
	b.must(b.chunk("three", up.Transfer, 3*wire.TransferPiece, content[3*wire.TransferPiece:4*wire.TransferPiece]))
	b.restart()
	again := b.begin("four", req)
	if again.Offset != 4*wire.TransferPiece {
		t.Fatalf("after the daemon's end: %+v", again)
	}
	b.send("four", again.Transfer, content, again.Offset)
	b.must(b.commit("four", again.Transfer, content))
	b.has("f", string(content))
	b.nothing()
}

// Another key, size, path or holder is another upload.
func TestUploadIsItsOwn(t *testing.T) {
	b := newUploads(t)
	first := wire.TransferOpen{Path: "f", Size: ptr(int64(10)), Key: "k"}
	up := b.begin("s", first)
	b.must(b.chunk("s", up.Transfer, 0, []byte("xx")))
	for name, other := range map[string]wire.TransferOpen{
		"key":    {Path: "f", Size: ptr(int64(10)), Key: "l"},
		"size":   {Path: "f", Size: ptr(int64(11)), Key: "k"},
		"path":   {Path: "g", Size: ptr(int64(10)), Key: "k"},
		"no key": {Path: "f", Size: ptr(int64(10))},
	} {
		if o := b.begin("s", other); o.Offset != 0 || o.Transfer == up.Transfer {
			t.Errorf("another %s: %+v", name, o)
		}
	}
	by := b.by("s")
	by.Holder = "else"
	o, _, err := b.Uploads.Open(b.ctx, b.Root, by, first, nil)
	if err != nil || o.Offset != 0 || o.Transfer == up.Transfer {
		t.Errorf("another holder: %+v, %v", o, err)
	}
	_, err = b.Abort("else", wire.TransferAbort{Transfer: up.Transfer})
	b.must(err)
	b.must(b.chunk("s", up.Transfer, 2, []byte("x"))) // another session's abort is nothing to it
}

// A daemon that is killed leaves what is on the disk, as far as it was written down;
// what was damaged since is not gone on with.
func TestUploadAfterKill(t *testing.T) {
	content := noise(4, checkpointBytes+3*wire.TransferPiece)
	req := wire.TransferOpen{Path: "f", Size: ptr(int64(len(content))), Key: "k"}
	for name, damage := range map[string]struct {
		do   func(b *uploads, part string)
		from int64
	}{
		"none":    {func(*uploads, string) {}, checkpointBytes},
		"longer":  {func(b *uploads, part string) { b.must(os.Truncate(part, checkpointBytes+99)) }, checkpointBytes},
		"shorter": {func(b *uploads, part string) { b.must(os.Truncate(part, checkpointBytes-1)) }, 0},
		"gone":    {func(b *uploads, part string) { b.must(os.Remove(part)) }, 0},
		"another file": {func(b *uploads, part string) {
			b.must(os.WriteFile(part+"x", content, 0o600))
			b.must(os.Rename(part+"x", part))
		}, 0},
		"a link":           {func(b *uploads, part string) { b.must(os.Remove(part)); b.must(os.Symlink(b.out+"/secret", part)) }, 0},
		"a second name":    {func(b *uploads, part string) { b.must(os.Link(part, part+"x")) }, 0},
		"the record":       {func(b *uploads, part string) { b.must(os.WriteFile(b.record(), []byte("{"), 0o600)) }, 0},
		"the hash's state": {func(b *uploads, part string) { b.tamper(`"sum":"`, `"sum":"AAAA`) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newUploads(t)
			up := b.begin("s", req)
			b.send("s", up.Transfer, content[:checkpointBytes+wire.TransferPiece], 0)
			b.kill(up.Transfer)
			damage.do(b, b.in(partName(up.Transfer)))
			again := b.begin("s", req)
			if again.Offset != damage.from {
				t.Fatalf("goes on at %d, want %d", again.Offset, damage.from)
			}
			b.send("s", again.Transfer, content, again.Offset)
			b.must(b.commit("s", again.Transfer, content))
			b.has("f", string(content))
			b.has(b.out+"/secret", secret)
		})
	}
}

// kill forgets an open upload as a killed process does.
func (b *uploads) kill(id string) {
	b.t.Helper()
	u := b.Uploads
	u.mu.Lock()
	up := u.open[id]
	delete(u.open, id)
	u.mu.Unlock()
	up.mu.Lock()
	b.must(up.settle())
	up.idle.Stop()
	unix.Close(up.temp.fd)
	up.dir.close()
	up.release()
	up.ended = true
	up.mu.Unlock()
}

func (b *uploads) record() string {
	b.t.Helper()
	entries := must(os.ReadDir(b.state))
	if len(entries) != 1 {
		b.t.Fatalf("%d records", len(entries))
	}
	return b.state + "/" + entries[0].Name()
}

func (b *uploads) tamper(old, new string) {
	b.t.Helper()
	path := b.record()
	b.must(os.WriteFile(path, bytes.Replace(must(os.ReadFile(path)), []byte(old), []byte(new), 1), 0o600))
}

// What is not what was sent is thrown away, and the old content stays.
func TestUploadMismatch(t *testing.T) {
	b := newUploads(t)
	b.put("f", "old")
	up := b.begin("s", wire.TransferOpen{Path: "f", Size: ptr(int64(3)), Key: "k"})
	b.must(b.chunk("s", up.Transfer, 0, []byte("new")))
	want(t, b.commit("s", up.Transfer, []byte("other")), wire.TransferMismatch)
	want(t, b.commit("s", up.Transfer, []byte("new")), wire.TransferNotFound)
	b.has("f", "old")
	b.nothing()

	_, _, err := b.Uploads.Open(b.ctx, b.Root, b.by("s"), wire.TransferOpen{Path: "f", Size: ptr(int64(3)), SHA256: digest([]byte("other"))}, []byte("new"))
	want(t, err, wire.TransferMismatch)
	b.has("f", "old")
	b.nothing()
}

// A small file needs one message.
func TestUploadWhole(t *testing.T) {
	b := newUploads(t)
	open := func(path, content string, more func(*wire.TransferOpen)) (wire.TransferOpened, error) {
		req := wire.TransferOpen{Path: path, Size: ptr(int64(len(content))), SHA256: digest([]byte(content))}
		if more != nil {
			more(&req)
		}
		answer, _, err := b.Uploads.Open(b.ctx, b.Root, b.by("s"), req, []byte(content))
		return answer, err
	}
	for path, content := range map[string]string{"f": "content", "empty": "", "sub/deep/f": "x"} {
		answer, err := open(path, content, func(r *wire.TransferOpen) { r.CreateParents = true })
		if err != nil || !answer.Done || answer.Offset != int64(len(content)) {
			t.Errorf("%s: %+v, %v", path, answer, err)
		}
		b.has(path, content)
	}
	if b.held.Load() != 0 {
		t.Error("a session is held by what is done")
	}
	_, err := open("no/parents", "x", nil)
	want(t, err, wire.PathNotFound)
	_, err = open("sub", "x", nil)
	want(t, err, wire.InternalError, "is_a_directory")
	_, err = open("f", "more", func(r *wire.TransferOpen) { r.Size = ptr(int64(5)) })
	want(t, err, wire.InvalidArgument)
	_, err = open("../outside/secret", "x", nil)
	want(t, err, wire.PathOutsideAllowedRoot)

	// What is there already isn't sent.
	when := time.Unix(1700000000, 123456789)
	same := func(r *wire.TransferOpen) { r.UnlessSame, r.MTimeNS, r.Mode = true, ptr(when.UnixNano()), ptr("0640") }
	if _, err := open("f", "content", same); err != nil {
		t.Fatal(err)
	}
	was := b.ino("f")
	if answer, err := open("f", "CONTENT", same); err != nil || !answer.Done || b.ino("f") != was {
		t.Errorf("the same: %+v, %v", answer, err)
	}
	if _, err := open("f", "longer content", same); err != nil || b.ino("f") == was {
		t.Errorf("another size: %v", err)
	}
	b.has("f", "longer content")
	if mode := must(os.Stat(b.in("f"))).Mode().Perm(); mode != 0o640 {
		t.Errorf("mode %v", mode)
	}
	b.nothing()
	b.untouched()
}

// A file that is replaced keeps what it is, and links stay links.
func TestUploadReplaces(t *testing.T) {
	b := newUploads(t)
	b.put("f", "old")
	b.must(os.Chmod(b.in("f"), 0o604))
	b.link("f", "l")
	up := b.begin("s", wire.TransferOpen{Path: "l", Size: ptr(int64(3)), Key: "k"})
	if mode := must(os.Stat(b.in(partName(up.Transfer)))).Mode().Perm(); mode&0o077 != 0 {
		t.Errorf("others may read what comes: %v", mode)
	}
	b.must(b.chunk("s", up.Transfer, 0, []byte("new")))
	b.must(b.commit("s", up.Transfer, []byte("new")))
	b.has("f", "new")
	if mode := must(os.Stat(b.in("f"))).Mode().Perm(); mode != 0o604 {
		t.Errorf("mode %v", mode)
	}
	if target := must(os.Readlink(b.in("l"))); target != "f" {
		t.Errorf("the link is %q", target)
	}
}

// A group that shares a directory shares what is put there.
func TestUploadIntoShared(t *testing.T) {
	b := newUploads(t)
	b.mkdir("shared")
	b.must(os.Chmod(b.in("shared"), 0o770|os.ModeSetgid))
	req := wire.TransferOpen{Path: "shared/f", Size: ptr(int64(1)), SHA256: digest([]byte("x")), Mode: ptr("4744")}
	_, _, err := b.Uploads.Open(b.ctx, b.Root, b.by("s"), req, []byte("x"))
	b.must(err)
	if mode := must(os.Stat(b.in("shared/f"))).Mode(); mode != 0o774 {
		t.Errorf("mode %v", mode)
	}
}

// The path must lead, at the end, where it led at the beginning.
func TestUploadMoved(t *testing.T) {
	b := newUploads(t)
	b.mkdir("d")
	req := wire.TransferOpen{Path: "d/f", Size: ptr(int64(1)), Key: "k"}
	up := b.begin("s", req)
	b.must(b.chunk("s", up.Transfer, 0, []byte("x")))
	b.must(os.Rename(b.in("d"), b.out+"/d"))
	want(t, b.commit("s", up.Transfer, []byte("x")), wire.PathNotFound)
	b.link("../outside/d", "d")
	want(t, b.commit("s", up.Transfer, []byte("x")), wire.PathOutsideAllowedRoot)
	b.must(os.Remove(b.in("d")))
	b.mkdir("d")
	want(t, b.commit("s", up.Transfer, []byte("x")), wire.PathNotFound, "moved")
	if again := b.begin("s", req); again.Offset != 0 {
		t.Errorf("goes on in another directory: %+v", again)
	}
	b.gone(b.out + "/d/f")
	b.must(os.RemoveAll(b.out + "/d"))
}

func TestUploadRefuses(t *testing.T) {
	b := newUploads(t)
	b.mkdir("d")
	b.must(unix.Mkfifo(b.in("fifo"), 0o600))
	for name, c := range map[string]struct {
		req  wire.TransferOpen
		code wire.Code
	}{
		"a directory":      {wire.TransferOpen{Path: "d"}, wire.InternalError},
		"the root":         {wire.TransferOpen{Path: "."}, wire.InternalError},
		"a FIFO":           {wire.TransferOpen{Path: "fifo"}, wire.InternalError},
		"outside":          {wire.TransferOpen{Path: "../outside/x"}, wire.PathOutsideAllowedRoot},
		"no path":          {wire.TransferOpen{}, wire.InternalError},
		"NUL":              {wire.TransferOpen{Path: "a\x00b"}, wire.PathInvalidChars},
		"missing parent":   {wire.TransferOpen{Path: "no/f"}, wire.PathNotFound},
		"negative":         {wire.TransferOpen{Path: "f", Size: ptr(int64(-1))}, wire.InvalidArgument},
		"mode":             {wire.TransferOpen{Path: "f", Mode: ptr("rwx")}, wire.InvalidArgument},
		"large mode":       {wire.TransferOpen{Path: "f", Mode: ptr("10000")}, wire.InvalidArgument},
		"key":              {wire.TransferOpen{Path: "f", Key: strings.Repeat("k", maxUploadKey+1)}, wire.InvalidArgument},
		"more than a disk": {wire.TransferOpen{Path: "f", Size: ptr(int64(1 << 60)), Key: "k"}, wire.DiskFull},
	} {
		_, _, err := b.Uploads.Open(b.ctx, b.Root, b.by("s"), c.req, nil)
		if wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if n := b.held.Load(); n != 0 {
		t.Errorf("%d sessions held", n)
	}
	b.nothing()
	b.untouched()
}

func TestUploadLimits(t *testing.T) {
	b := newUploads(t)
	size := ptr(int64(1))
	for i := range maxSessionUploads {
		b.begin("s", wire.TransferOpen{Path: "f", Size: size, Key: string(rune('a' + i))})
	}
	_, _, err := b.Uploads.Open(b.ctx, b.Root, b.by("s"), wire.TransferOpen{Path: "g", Size: size, Key: "k"}, nil)
	want(t, err, wire.ShimOverloaded, "too_many_transfers")
	for i := maxSessionUploads; i < maxUploads; i++ {
		b.begin(string(rune('A'+i/maxSessionUploads)), wire.TransferOpen{Path: "h", Size: size, Key: string(rune('a' + i))})
	}
	_, _, err = b.Uploads.Open(b.ctx, b.Root, b.by("another"), wire.TransferOpen{Path: "i", Size: size, Key: "k"}, nil)
	want(t, err, wire.ShimOverloaded, "too_many_transfers")
	b.EndSession("s")
	b.begin("another", wire.TransferOpen{Path: "i", Size: size, Key: "k"})
}

// One to which nothing comes is closed, keeps what came, and holds no session.
func TestUploadIdle(t *testing.T) {
	b := newUploads(t)
	b.Uploads.opt.Idle = time.Millisecond
	req := wire.TransferOpen{Path: "f", Size: ptr(int64(2)), Key: "k"}
	up := b.begin("s", req)
	for err := error(nil); !errors.Is(err, wire.TransferNotFound); { // closed between two looks, or empty and gone
		if err = b.chunk("s", up.Transfer, 0, []byte("x")); err != nil {
			want(t, err, wire.TransferNotFound)
		}
	}
	b.Uploads.opt.Idle = time.Minute
	for b.held.Load() != 0 {
		unix.Getpid()
	}
	b.begin("s", req)
}

// What nobody goes on with is swept after a week, not before, and not while it is open.
func TestUploadSweep(t *testing.T) {
	b := newUploads(t)
	old := time.Now().Add(-partAge - time.Hour)
	up := b.begin("s", wire.TransferOpen{Path: "f", Size: ptr(int64(2)), Key: "k"})
	b.must(b.chunk("s", up.Transfer, 0, []byte("x")))
	b.EndSession("s")
	b.must(b.Uploads.Sweep(b.ctx))
	must(b.Root.Sweep(b.ctx))
	if again := b.begin("s", wire.TransferOpen{Path: "f", Size: ptr(int64(2)), Key: "k"}); again.Offset != 1 {
		t.Fatalf("swept too early: %+v", again)
	}
	b.EndSession("s")
	b.must(os.Chtimes(b.record(), old, old))
	b.must(b.Uploads.Sweep(b.ctx))
	if left := must(os.ReadDir(b.state)); len(left) != 0 {
		t.Errorf("%d records left", len(left))
	}
	s := &sweep{root: b.Root, ctx: b.ctx}
	fd := must(openDir(b.Root.self.fd, "."))
	defer unix.Close(fd)
	s.entry(&handle{fd: fd, id: b.Root.self.id}, partName(up.Transfer), farFuture())
	b.gone(partName(up.Transfer))
}

// A full disk is told with what is needed and what there is, keeps what came, and
// lets it go on.
func TestUploadDiskFull(t *testing.T) {
	b := newUploads(t)
	withMounts(t, func() {
		b.mkdir("disk")
		mount(t, "tmpfs", b.in("disk"), "tmpfs", "size=1m", 0)
		r := must(Open(b.in("disk"), must(NewForbidden()), nil))
		defer r.Close()
		req := wire.TransferOpen{Path: "f", Size: ptr(int64(2 << 20)), Key: "k"}
		_, _, err := b.Uploads.Open(b.ctx, r, b.by("s"), req, nil)
		want(t, err, wire.DiskFull)
		if d := wire.AsError(err).Details; d["needed_bytes"] != int64(2<<20) || d["available_bytes"] == nil {
			t.Errorf("details %v", d)
		}
		content := noise(5, 900<<10)
		req.Size = ptr(int64(len(content)))
		up, _, err := b.Uploads.Open(b.ctx, r, b.by("s"), req, nil)
		if err != nil {
			t.Error(err)
			return
		}
		b.must(b.chunk("s", up.Transfer, 0, content[:wire.TransferPiece]))
		b.must(os.WriteFile(b.in("disk/other"), make([]byte, 700<<10), 0o600))
		want(t, b.chunk("s", up.Transfer, wire.TransferPiece, content[wire.TransferPiece:2*wire.TransferPiece]), wire.DiskFull)
		b.must(os.Remove(b.in("disk/other")))
		b.send("s", up.Transfer, content, wire.TransferPiece)
		if _, _, err := b.Uploads.Commit(b.ctx, r, "s", wire.TransferCommit{Transfer: up.Transfer, SHA256: digest(content)}); err != nil {
			t.Error(err)
		}
		if got := must(os.ReadFile(b.in("disk/f"))); !bytes.Equal(got, content) {
			t.Error("another content")
		}
		b.must(unix.Mount("", b.in("disk"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		_, _, err = b.Uploads.Open(b.ctx, r, b.by("s"), wire.TransferOpen{Path: "g", Size: ptr(int64(1)), Key: "k"}, nil)
		want(t, err, wire.ReadOnlyDisk)
	})
}

// A directory where nothing may be made says so.
func TestUploadNotAllowed(t *testing.T) {
	b := newUploads(t)
	b.mkdir("d")
	asUser(t, 12345, 12345, func() {
		_, _, err := b.Uploads.Open(b.ctx, b.Root, b.by("s"), wire.TransferOpen{Path: "d/f", Size: ptr(int64(1)), Key: "k"}, nil)
		want(t, err, wire.PathNotAllowed)
	})
}
