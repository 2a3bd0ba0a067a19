package files

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watched is what is of interest in a directory on the way to what is private, or of
// what is at the end: its own rights and place, and which entries it has.
const watched = unix.IN_ATTRIB | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF |
	unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO

// Watch calls changed whenever something happened to what rules without wildcards
// lead to, or to what is on the way there, that may make Sealed say something else:
// other rights, something else in its place. It begins with a call and returns when
// ctx ends, or if the system can't watch. What it doesn't see is another name of a
// file in a private directory.
func (p *Private) Watch(ctx context.Context, changed func()) error {
	if p == nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch what is private: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	defer context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })() // ends the read
	w := watch{fd: fd}
	w.arm(p)
	changed()
	buf := make([]byte, 16<<10)
	for {
		n, err := events.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("watch what is private: %w", err)
		case w.concern(buf[:n]):
			w.arm(p)
			changed()
		}
	}
}

// watch is an inotify(7) instance.
type watch struct {
	fd    int
	names map[int32]map[string]bool // by watch, the entries on the way, in lower case
}

// arm watches what is on the way to everything now.
func (w *watch) arm(p *Private) {
	w.names = make(map[int32]map[string]bool)
	for i := range p.rules {
		if glob := p.rules[i].Pattern; glob.Literal() {
			w.walk(glob.Prefix())
		}
	}
}

// walk goes along a path as Sealed does. Where it can't go on nothing is left to be
// watched, until that changes.
func (w *watch) walk(ahead []string) {
	at, err := rootSlash()
	if err != nil {
		return
	}
	defer func() { at.close() }()
	var done []string
	for links := 0; len(ahead) > 0; {
		name, rest := ahead[0], ahead[1:]
		if name != ".." {
			w.add(&at, name)
			next, target, err := lookAt(&at, name)
			if err != nil {
				return
			}
			if target == "" {
				at.close()
				at, done, ahead = next, append(done, name), rest
				continue
			}
			next.close()
			if links++; links > MaxLinks {
				return
			}
			ahead = join(split(target), rest)
			if target[0] != '/' {
				ahead = join(done, ahead)
			}
		} else {
			ahead = join(done[:max(len(done)-1, 0)], rest)
		}
		at.close()
		if at, err = rootSlash(); err != nil {
			return
		}
		done = nil
	}
	w.add(&at, "")
}

// add watches an object, and name in it.
func (w *watch) add(at *handle, name string) {
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", at.fd), watched)
	if err != nil {
		return // there are too many: it is looked at now and then all the same
	}
	if w.names[int32(wd)] == nil {
		w.names[int32(wd)] = make(map[string]bool)
	}
	w.names[int32(wd)][strings.ToLower(name)] = true
}

// concern says whether there is an event among these that matters.
func (w *watch) concern(b []byte) bool {
	for len(b) >= unix.SizeofInotifyEvent {
		field := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) } // wd, mask, cookie, len
		wd, mask, n := int32(field(0)), field(1), int(field(3))
		b = b[unix.SizeofInotifyEvent:]
		n = min(n, len(b))
		name := strings.TrimRight(string(b[:n]), "\x00")
		b = b[n:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			return true
		}
		on, known := w.names[wd]
		if known && mask&watched != 0 && (name == "" || on[strings.ToLower(name)]) {
			return true
		}
	}
	return false
}
