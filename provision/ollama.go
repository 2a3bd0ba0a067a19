package provision

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"farhand/internal/atomicfile"
	"farhand/internal/elfarch"
	"farhand/internal/ustar"
	"farhand/provision/request"
)

// The local model's server lies on the data partition as an image's payload lays
// it: versions/ID is what an archive holds, and the link current leads to the one
// that ollama.service runs. Its user may write in neither.
const (
	ollamaDir     = "/data/ollama"
	ollamaUnit    = "ollama.service"
	ollamaProgram = "bin/ollama"

	versions   = "versions"
	current    = "current"
	unfinished = ".new-" // before the ID of a version that is being unpacked
	nextLink   = ".current"
)

// Bounds of an archive. One without libraries for graphics cards has about 100 MB.
const (
	mostArchive  = 2 << 30 // bytes
	mostUnpacked = 4 << 30 // bytes
	mostEntries  = 10_000
	// roomLeft is what an installation leaves free: what is kept and recorded needs
	// some, and a model more.
	roomLeft = 128 << 20 // bytes
)

const (
	// watchFor is how long a server that was started must run: longer than its unit
	// waits before it starts one again that ended (RestartSec).
	watchFor   = 8 * time.Second
	watchEvery = time.Second
)

var _ request.OllamaKeeper = (*Server)(nil)

// InstallOllama implements request.OllamaKeeper.
func (srv *Server) InstallOllama(ctx context.Context, r request.InstallOllama, archive *os.File) error {
	return srv.onOllama(func(root *os.Root) error {
		o := ollama{System: srv.sys, root: root}
		return o.install(ctx, r, archive)
	})
}

// RemoveOllama implements request.OllamaKeeper.
func (srv *Server) RemoveOllama(ctx context.Context, r request.RemoveOllama) error {
	return srv.onOllama(func(root *os.Root) error {
		o := ollama{System: srv.sys, root: root}
		return o.remove(ctx, r.Models)
	})
}

// onOllama does one thing at a time where the server lies.
func (srv *Server) onOllama(do func(*os.Root) error) error {
	if !srv.ollama.TryLock() {
		return unavailable("the local model's server is just being installed or removed")
	}
	defer srv.ollama.Unlock()
	if srv.report.Degraded != "" {
		return unavailable("nothing can be kept on this card; see farhandd status")
	}
	root, err := os.OpenRoot(srv.sys.path(ollamaDir))
	if err != nil {
		return unavailable("the data partition isn't there: " + err.Error())
	}
	defer root.Close()
	return do(root)
}

// tidyOllama removes what an installation left that was cut off.
func (srv *Server) tidyOllama() error {
	root, err := os.OpenRoot(srv.sys.path(ollamaDir))
	if err != nil {
		return nil // nothing was ever installed
	}
	defer root.Close()
	o := ollama{System: srv.sys, root: root}
	return o.clear()
}

func unavailable(why string) error {
	return &request.Error{Code: request.Unavailable, Message: why}
}

func refused(format string, args ...any) error {
	return &request.Error{Code: request.Refused, Message: "the archive: " + fmt.Sprintf(format, args...)}
}

// ollama is where the local model's server lies.
type ollama struct {
	*System
	root *os.Root
}

// install can be cut off at any moment: a version has its name once all of it is
// on the disk, and runs once the link leads to it, which changes in one step. One
// that doesn't stay up makes room for that of before.
func (o *ollama) install(ctx context.Context, r request.InstallOllama, archive *os.File) error {
	id, before := r.SHA256[:request.OllamaIDLen], o.current()
	if id == before {
		return o.start(ctx, id)
	}
	if err := o.clear(); err != nil {
		return err
	}
	if err := o.unpack(ctx, unfinished+id, r.SHA256, archive); err != nil {
		_ = o.root.RemoveAll(path.Join(versions, unfinished+id)) // or the next one does
		return err
	}
	o.at("ollama: unpacked")
	ctx = context.WithoutCancel(ctx) // from here on it is done or undone
	if err := o.rename(versions, unfinished+id, id); err != nil {
		return err
	}
	o.at("ollama: version is there")
	if err := o.lead(id); err != nil {
		return err
	}
	o.at("ollama: link leads to it")
	if err := o.start(ctx, id); err != nil {
		return errors.Join(err, o.back(ctx, before))
	}
	o.at("ollama: runs")
	return o.clear()
}

// current is the ID of the version that is to run; empty if there is none.
func (o *ollama) current() string {
	to, err := o.root.Readlink(current)
	id, ok := strings.CutPrefix(to, versions+"/")
	if err != nil || !ok || strings.ContainsAny(id, "/.") {
		return ""
	}
	if info, err := o.root.Stat(path.Join(versions, id, ollamaProgram)); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return id
}

// clear removes all versions but the one that is to run, whole or not.
func (o *ollama) clear() error {
	keep := o.current()
	list, err := fs.ReadDir(o.root.FS(), versions)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if e.Name() != keep {
			err = errors.Join(err, o.root.RemoveAll(path.Join(versions, e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("remove other versions of Ollama: %w", err)
	}
	return nil
}

// lead has the link lead to a version, in one step; to none, it is removed.
func (o *ollama) lead(id string) error {
	var err error
	if id == "" {
		err = ignoreMissing(o.root.Remove(current))
	} else {
		err = errors.Join(ignoreMissing(o.root.Remove(nextLink)), o.root.Symlink(path.Join(versions, id), nextLink), o.root.Rename(nextLink, current))
	}
	if err == nil {
		err = atomicfile.SyncDir(o.path(ollamaDir))
	}
	if err != nil {
		return fmt.Errorf("choose a version of Ollama: %w", err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (o *ollama) rename(dir, from, to string) error {
	err := o.root.Rename(path.Join(dir, from), path.Join(dir, to))
	if err == nil {
		err = atomicfile.SyncDir(o.path(ollamaDir, dir))
	}
	return err
}

// start has the unit run what the link leads to, and sees whether it stays up.
func (o *ollama) start(ctx context.Context, id string) error {
	if err := o.run(ctx, "systemctl", "restart", ollamaUnit); err != nil {
		return fmt.Errorf("start version %s of Ollama: %w", id, err)
	}
	for waited := time.Duration(0); ; waited += watchEvery {
		if err := o.run(ctx, "systemctl", "is-active", "--quiet", ollamaUnit); err != nil {
			return &request.Error{Code: request.Refused, Message: fmt.Sprintf("version %s of Ollama doesn't stay up; the journal of %s says why", id, ollamaUnit)}
		}
		if waited >= watchFor {
			return nil
		}
		if !rest(ctx, watchEvery) {
			return context.Cause(ctx)
		}
	}
}

// back has the version of before run again, if there was one.
func (o *ollama) back(ctx context.Context, before string) error {
	err := o.lead(before)
	do := "restart"
	if before == "" {
		do = "stop"
	}
	return errors.Join(err, o.run(ctx, "systemctl", do, ollamaUnit), o.clear())
}

// remove takes the link away first: without it the unit doesn't start.
func (o *ollama) remove(ctx context.Context, models bool) error {
	if err := o.lead(""); err != nil {
		return err
	}
	o.at("ollama: no link")
	ctx = context.WithoutCancel(ctx)
	if err := o.run(ctx, "systemctl", "stop", ollamaUnit); err != nil {
		return fmt.Errorf("stop Ollama: %w", err)
	}
	err := o.clear()
	if models {
		for _, dir := range []string{"models", "home"} {
			err = errors.Join(err, o.empty(dir))
		}
	}
	return err
}

// empty removes what is in a directory, which stays with its owner and mode.
func (o *ollama) empty(dir string) error {
	list, err := fs.ReadDir(o.root.FS(), dir)
	if err := ignoreMissing(err); err != nil {
		return fmt.Errorf("remove what Ollama has in %s: %w", dir, err)
	}
	for _, e := range list {
		if err := o.root.RemoveAll(path.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove what Ollama has in %s: %w", dir, err)
		}
	}
	return nil
}

// unpack makes a directory below versions of what an archive holds. Files are
// root's, with fixed modes. What is hashed is what is unpacked, in one reading:
// whoever has the archive open could change it between two.
func (o *ollama) unpack(ctx context.Context, name, sum string, archive *os.File) error {
	room, err := o.roomFor(archive)
	if err != nil {
		return err
	}
	if err := o.root.MkdirAll(path.Join(versions, name), 0o755); err != nil {
		return full(err)
	}
	to, err := o.root.OpenRoot(path.Join(versions, name))
	if err != nil {
		return err
	}
	defer to.Close()
	h := sha256.New()
	from := io.TeeReader(bufio.NewReaderSize(reading{ctx, archive}, 256<<10), h)
	u := unpacking{to: to, room: room, dirs: map[string]bool{".": true}}
	err = u.all(from)
	if err == nil {
		_, err = io.Copy(io.Discard, from) // what is behind the tar
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return refused("its SHA-256 is %s and not %s", got, sum)
	}
	if err := runsHere(to); err != nil {
		return err
	}
	return u.settle(o.path(ollamaDir, versions, name))
}

// roomFor is how much an archive may unpack to.
func (o *ollama) roomFor(archive *os.File) (int64, error) {
	info, err := archive.Stat()
	switch {
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, refused("it is no file")
	case info.Size() > mostArchive:
		return 0, refused("it has %d bytes, and %d are allowed", info.Size(), int64(mostArchive))
	}
	free, err := o.freeSpace(o.path(ollamaDir))
	if err != nil {
		return 0, fmt.Errorf("how much room there is: %w", err)
	}
	return min(free-roomLeft, mostUnpacked), nil
}

// reading reads an archive until its context ends.
type reading struct {
	ctx context.Context
	f   *os.File
}

func (r reading) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.f.Read(b)
}

// unpacking makes the files of an archive.
type unpacking struct {
	to   *os.Root
	room int64           // bytes
	dirs map[string]bool // that were made
}

func (u *unpacking) all(compressed io.Reader) error {
	z, err := gzip.NewReader(compressed)
	if err != nil {
		return refused("it isn't compressed by gzip")
	}
	archive, left := ustar.NewReader(z), u.room
	for n := 0; ; n++ {
		e, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wrong(err)
		}
		if left -= e.Size; left < 0 && u.room < mostUnpacked {
			return &request.Error{Code: request.NoRoom, Message: fmt.Sprintf("what it unpacks to is more than the %d MiB that are free and not kept back", max(u.room, 0)>>20)}
		}
		if left < 0 || n >= mostEntries {
			return refused("it unpacks to more than %d bytes or %d files", int64(mostUnpacked), mostEntries)
		}
		if err := u.one(e, archive); err != nil {
			return wrong(fmt.Errorf("%s: %w", e.Name, full(err)))
		}
	}
}

func (u *unpacking) one(e ustar.Entry, content io.Reader) error {
	dir := path.Dir(e.Name)
	if e.Kind == ustar.Directory {
		dir = e.Name
	}
	if err := u.to.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for ; !u.dirs[dir]; dir = path.Dir(dir) {
		u.dirs[dir] = true
	}
	switch e.Kind {
	case ustar.Link:
		return u.to.Symlink(e.Target, e.Name)
	case ustar.File:
		mode := fs.FileMode(0o644)
		if e.Executable {
			mode = 0o755
		}
		f, err := u.to.OpenFile(e.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	}
	return nil
}

// settle sees to it that all of it is on the disk.
func (u *unpacking) settle(at string) error {
	var errs []error
	for dir := range u.dirs {
		errs = append(errs, u.to.Chmod(dir, 0o755), atomicfile.SyncDir(path.Join(at, dir)))
	}
	return errors.Join(errs...)
}

// wrong makes the archive's fault of what isn't the disk's.
func wrong(err error) error {
	var system syscall.Errno
	var code request.Code
	if errors.As(err, &code) {
		return err
	}
	if errors.As(err, &system) && system != syscall.EEXIST && system != syscall.ENOTDIR && system != syscall.EISDIR && system != syscall.ELOOP {
		return err
	}
	return refused("%v", err)
}

// full gives a full disk its code.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &request.Error{Code: request.NoRoom, Message: "the disk is full"}
	}
	return err
}

// runsHere looks whether the program is one, and for this machine.
func runsHere(to *os.Root) error {
	f, err := to.Open(ollamaProgram)
	if err != nil {
		return refused("it has no program %s", ollamaProgram)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return refused("its %s is no program", ollamaProgram)
	}
	header := make([]byte, elfarch.HeaderLen)
	if _, err := io.ReadFull(f, header); err != nil {
		return refused("its %s is no program", ollamaProgram)
	}
	switch arch := elfarch.Of(header); arch {
	case runtime.GOARCH:
		return nil
	case "":
		return refused("its %s is for other processors than this machine's, which is %s", ollamaProgram, runtime.GOARCH)
	default:
		return refused("it is for %s, and this machine is %s", arch, runtime.GOARCH)
	}
}
