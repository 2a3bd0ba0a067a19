package files

import (
	"golang.org/x/sys/unix"
)

// outside follows an absolute path that isn't the root's by name: it may come to
// the root by a link further up, or leave a side directory for it by "..". Only
// names are followed here. Nothing is opened but as a place to stand on, nothing
// is reported but whether the path comes to the root's own inode, and from there
// on the walk goes from the root's descriptor. What doesn't exist, can't be
// searched or isn't a directory is treated as if it were one, so the answer
// doesn't tell which.
func (w *walk) outside(names []string) error {
	slash, err := rootSlash()
	if err != nil {
		return err
	}
	defer slash.close()
	at := handle{fd: slash.fd, id: slash.id}
	defer func() { at.close() }()

	var done []string // canonical names of at, then those of phantoms
	phantoms := 0
	again := func(from []string) { // from "/"
		at.close()
		at = handle{fd: slash.fd, id: slash.id}
		names, done, phantoms = from, nil, 0
	}
	for len(names) > 0 {
		if err := w.step(); err != nil {
			return err
		}
		if below, ok := w.root.below(names); ok && len(done) == 0 {
			w.restart(below)
			return nil
		}
		name, rest := names[0], names[1:]
		names = rest
		switch {
		case name == ".." && phantoms > 0:
			phantoms--
			done = done[:len(done)-1]
		case name == "..":
			if len(done) > 0 {
				done = done[:len(done)-1]
			}
			again(join(done, rest))
		case phantoms > 0:
			phantoms++
			done = append(done, name)
		default:
			next, target, err := look(&at, name)
			switch {
			case err != nil:
				phantoms = 1
				done = append(done, name)
			case next.id == w.root.self.id:
				next.close()
				w.restart(rest)
				return nil
			case w.root.never.blocks(at.id, name, next.id, func() (int64, error) { return fsType(next.fd) }):
				next.close()
				return w.root.outside(w.asked)
			case target != "":
				next.close()
				if w.links++; w.links > MaxLinks {
					return w.root.outside(w.asked)
				}
				names = join(split(target), rest)
				if target[0] == '/' {
					again(names)
				}
			default:
				at.close()
				at = next
				done = append(done, name)
			}
		}
	}
	return w.root.outside(w.asked)
}

// look opens name as a place to stand on and, if it is a link, reads it.
func look(at *handle, name string) (next handle, target string, err error) {
	fd, err := openat(at.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return handle{}, "", err
	}
	next = handle{fd: fd, owned: true}
	st, err := fstat(fd)
	if err == nil && kindOf(&st) == unix.S_IFLNK {
		target, err = readlinkat(fd, "")
	}
	if err == nil && kindOf(&st) != unix.S_IFLNK && kindOf(&st) != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		next.close()
		return handle{}, "", err
	}
	next.id = identOf(&st)
	return next, target, nil
}
