package files

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSecond bounds the second places that are kept.
const maxSecond = 1024

// second is a place whose content is that of another one, since one file system, or a
// part of it, is mounted twice.
type second struct{ place, same []string } // names from "/"

// mounts are the second places of this process's mounts. They are read again when
// these change.
type mounts struct {
	table   *os.File // /proc/thread-self/mountinfo, open: the kernel tells by it
	places  []second
	unknown bool
}

// look is what there is now. The caller holds a lock.
func (m *mounts) look() []second {
	if m.unknown {
		return nil
	}
	if m.table == nil {
		// Of any thread: they share their mounts. Not by os.Open: that has the runtime
		// poll it, too, and a change is told once.
		fd, err := openat(unix.AT_FDCWD, "/proc/thread-self/mountinfo", unix.O_RDONLY, 0)
		if err != nil {
			m.unknown = true // there is no /proc, and nothing can be told
			return nil
		}
		m.table = os.NewFile(uintptr(fd), "mountinfo")
	} else if !m.changed() {
		return m.places
	}
	if _, err := m.table.Seek(0, io.SeekStart); err == nil {
		m.places = secondPlaces(m.table)
	}
	return m.places
}

func (m *mounts) close() error {
	m.unknown = true
	if m.table == nil {
		return nil
	}
	return m.table.Close()
}

// changed says whether there are other mounts than at the last time (proc(5)).
func (m *mounts) changed() bool {
	fds := []unix.PollFd{{Fd: int32(m.table.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

// secondPlaces reads a table of mounts.
func secondPlaces(table io.Reader) []second {
	type mount struct {
		device   string
		root, at []string
	}
	var all []mount
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !strings.HasPrefix(fields[3], "/") { // namespaces have a root of another kind
			continue
		}
		m := mount{device: fields[2], root: split(unescaped(fields[3])), at: split(unescaped(fields[4]))}
		all = slices.DeleteFunc(all, func(under mount) bool { return slices.Equal(under.at, m.at) }) // which it hides
		all = append(all, m)
	}
	var places []second
	for i, a := range all {
		for j, b := range all {
			// What a shows, b shows too, from there on where the deeper of both roots is.
			if i == j || a.device != b.device || !beginsWith(b.root, a.root) || len(places)+2 > maxSecond {
				continue
			}
			inA := join(a.at, b.root[len(a.root):])
			if !slices.Equal(inA, b.at) {
				places = append(places, second{b.at, inA}, second{inA, b.at})
			}
		}
	}
	return places
}

func beginsWith(names, begin []string) bool {
	return len(names) >= len(begin) && slices.Equal(names[:len(begin)], begin)
}

// unescaped is a path of the table, in which some characters stand as octal numbers.
func unescaped(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}

// others are the other paths of a place, each with how many names of the place's own
// path stand for the beginning that differs.
func (t *territory) others(names []string, each func(other []string, own int)) {
	for _, s := range t.second {
		if beginsWith(names, s.place) {
			each(join(s.same, names[len(s.place):]), len(s.place))
		}
	}
}

// mountedElsewhere is a place where something of what lies in the directory names is
// shown, too, outside of it; nil: there is none.
func (t *territory) mountedElsewhere(names []string) []string {
	for _, s := range t.second {
		if len(s.same) > len(names) && beginsWith(s.same, names) && !beginsWith(s.place, names) {
			return s.place
		}
	}
	return nil
}
