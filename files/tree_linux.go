package files

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Entries answers TRANSFER_LIST, at most wire.MaxListEntries at a time. What is
// left of unfinished writes and what no root opens up isn't there.
//
// Failures: those of List.
func (r *Root) Entries(ctx context.Context, req wire.TransferList) (wire.TransferEntries, Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	answer := wire.TransferEntries{Entries: []wire.TransferEntry{}}
	err := r.on(ctx, a, "list", true, &trace.Path, func(p *place) error {
		if p.exists && p.private() {
			return r.isPrivate(a)
		}
		dir, err := r.openToList(a, p)
		if err != nil {
			return err
		}
		defer dir.close()
		answer.Entries, answer.More, err = r.entries(ctx, &dir, p.into(dir.fd), req.After)
		return err
	})
	trace.Entries = len(answer.Entries)
	return answer, trace, err
}

// entries are the first after the name after; more says that others follow.
func (r *Root) entries(ctx context.Context, dir *handle, at view, after string) (list []wire.TransferEntry, more bool, err error) {
	const most = wire.MaxListEntries
	list = []wire.TransferEntry{}
	var names []string // as shown, a NUL, and as on the disk: in the order of what After says
	cut := func() {
		slices.Sort(names)
		more = more || len(names) > most
		names = names[:min(len(names), most)]
	}
	err = readDir(dir.fd, func(d dirent) error {
		own, err := at.name(ctx, dir, d)
		if err != nil {
			return err
		}
		name := shown(own)
		if name <= after || isTempName(d.name) || isPartName(d.name) {
			return nil
		}
		if names = append(names, name+"\x00"+d.name); len(names) == 4*most {
			cut()
		}
		return ctx.Err()
	})
	if err != nil {
		return list, false, err
	}
	cut()
	for _, both := range names {
		name, own, _ := strings.Cut(both, "\x00")
		var st unix.Stat_t
		if err := lstatat(dir.fd, own, &st); err == unix.ENOENT {
			continue // gone meanwhile
		} else if err != nil {
			return list, more, err
		}
		if r.blocked(dir, own, &st) {
			continue
		}
		e := wire.TransferEntry{Name: name, Kind: entryKind(&st), Size: st.Size, Mode: octal(st.Mode), MTimeNS: st.Mtim.Nano()}
		switch e.Kind {
		case wire.TransferLink:
			target, err := readlinkat(dir.fd, own)
			if err != nil {
				continue // swapped meanwhile
			}
			if e.Target = shown(target); !r.mayTell(ctx, &at, own) {
				e.Kind, e.Target = wire.TransferOther, ""
			}
		}
		list = append(list, e)
	}
	return list, more, nil
}

func entryKind(st *unix.Stat_t) string {
	switch kindOf(st) {
	case unix.S_IFREG:
		return wire.TransferFile
	case unix.S_IFDIR:
		return wire.TransferDirectory
	case unix.S_IFLNK:
		return wire.TransferLink
	}
	return wire.TransferOther
}

// Make answers TRANSFER_MAKE. The root itself is a directory that is there, whose
// mode and time stay.
//
// Failures: those of Write, PATH_EXISTS (something else has that name) and
// INVALID_ARGUMENT.
func (r *Root) Make(ctx context.Context, req wire.TransferMake) (Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	mode, err := permissions(req.Mode)
	if err != nil {
		return trace, a.fail(wire.InvalidArgument, "", "mode %q is no octal number from 0 to 0777", clipped(*req.Mode)).With("field", "mode")
	}
	link := req.Kind == wire.TransferLink
	if !link && req.Kind != wire.TransferDirectory || link != (req.Target != "") {
		return trace, a.fail(wire.InvalidArgument, "", "kind is directory, or link with a target").With("field", "kind")
	}
	err = r.on(ctx, a, "make", !link, &trace.Path, func(p *place) (err error) {
		if p.private() {
			return r.isPrivate(a)
		}
		if !p.exists && (p.why != "" || len(p.missing) > 1 && !req.CreateParents) {
			return missing(a, p)
		}
		if link {
			err = r.makeLink(ctx, a, p, req)
		} else {
			err = r.makeDir(a, p, mode, req.MTimeNS)
		}
		if err == unix.EINVAL {
			return badName(a)
		}
		return err
	})
	return trace, err
}

func (r *Root) makeDir(a asked, p *place, mode *uint32, mtime *int64) error {
	var at handle
	switch {
	case mode != nil && p.onTheWay(): // or others could put something in the place of what is private
		return r.holdsPrivate(a)
	case p.exists && kindOf(&p.st) != unix.S_IFDIR:
		return a.fail(wire.PathExists, "", "path %s exists and is no directory", a.shown())
	case p.exists && p.name == "":
		return nil
	case p.exists:
		fd, err := r.pinPlace(p)
		if err != nil {
			return err
		}
		at = handle{fd: fd, owned: true}
	default:
		dir, made, err := r.makeBelow(p.dir, p.missing)
		if err != nil {
			return err
		}
		made.close()
		at = dir
	}
	defer at.close()
	if mode == nil && mtime == nil {
		return nil
	}
	fd, err := openDir(at.fd, ".")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if mode != nil {
		err = setDirMode(fd, *mode)
	}
	if mtime != nil && err == nil {
		err = setTime(fd, *mtime)
	}
	if err == unix.EPERM && p.exists { // somebody else's, which is no failure of copying into it
		return nil
	}
	return err
}

// setDirMode keeps what a directory hands down (set-group-id) and the sticky bit.
func setDirMode(fd int, mode uint32) error {
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_ISGID != 0 {
		mode |= mode >> 3 & 0o070
	}
	return retry(func() error { return unix.Fchmod(fd, mode|st.Mode&(unix.S_ISGID|unix.S_ISVTX)) })
}

// makeLink makes a link whose target lies in the root, or will.
func (r *Root) makeLink(ctx context.Context, a asked, p *place, req wire.TransferMake) error {
	if p.onTheWay() || p.couldLead() {
		return r.holdsPrivate(a)
	}
	if p.exists && kindOf(&p.st) != unix.S_IFLNK {
		return a.fail(wire.PathExists, "", "path %s exists and is no link", a.shown())
	}
	target := req.Target
	if !strings.HasPrefix(target, "/") {
		above := p.above
		if !p.exists {
			above = append(slices.Clip(above), p.missing[:len(p.missing)-1]...)
		}
		target = "/" + strings.Join(append(append(slices.Clone(r.names), above...), target), "/")
	}
	to, err := r.resolve(ctx, r.ask("target", target), true)
	if err != nil {
		return err
	}
	to.close()
	if to.touched {
		return r.isPrivate(a)
	}
	dir, made, err := r.directoryOf(p)
	if err != nil {
		return err
	}
	defer made.close()
	defer dir.close()
	if p.exists {
		if now, err := readlinkat(dir.fd, p.name); err == nil && now == req.Target {
			return nil
		}
	}
	temp := tempName()
	if err := retry(func() error { return unix.Symlinkat(req.Target, dir.fd, temp) }); err != nil {
		made.undo()
		return err
	}
	if p.exists {
		err = renameat(dir.fd, temp, dir.fd, p.name)
	} else if err = moveNew(dir.fd, temp, dir.fd, lastName(p)); err == unix.EEXIST {
		err = errRaced
	}
	if err != nil {
		_ = unlinkat(dir.fd, temp, 0)
		made.undo()
		return err
	}
	if req.MTimeNS != nil {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(*req.MTimeNS)}
		_ = unix.UtimesNanoAt(dir.fd, lastName(p), times, unix.AT_SYMLINK_NOFOLLOW) // of a link nobody relies on it
	}
	syncDir(dir.fd)
	return nil
}
