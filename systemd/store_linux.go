package systemd

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Store keeps file descriptors in the service manager beyond the life of this
// process (sd_pid_notify_with_fds(3); FileDescriptorStoreMax= of the unit says
// how many). Its methods are safe for concurrent use.
type Store struct{ socket string }

// NewStore is the manager's store, or nil where no manager started us. socket is
// $NOTIFY_SOCKET.
func NewStore(socket string) *Store {
	if socket == "" {
		return nil
	}
	return &Store{socket: socket}
}

// Put keeps a copy of the descriptor under a name. The manager gives it to the
// next start of the service, unless the descriptor reports a hang-up before.
func (s *Store) Put(name string, fd uintptr) error {
	return s.send("FDSTORE=1", name, int(fd))
}

// Keep is Put for a descriptor that is wanted after a hang-up, too: there may be
// something left to read from it. A manager before version 246 drops it.
func (s *Store) Keep(name string, fd uintptr) error {
	return s.send("FDSTORE=1\nFDPOLL=0", name, int(fd))
}

// Remove lets go of what is kept under a name; that there is nothing isn't an
// error.
func (s *Store) Remove(name string) error { return s.send("FDSTOREREMOVE=1", name, -1) }

func (s *Store) send(what, name string, fd int) error {
	if !validName(name) {
		return fmt.Errorf("descriptor store: %q is no name for a descriptor", name)
	}
	// A connected socket of package net sends no rights.
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("descriptor store: %w", err)
	}
	defer unix.Close(socket)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if err := unix.Sendmsg(socket, []byte(what+"\nFDNAME="+name), rights, &unix.SockaddrUnix{Name: s.socket}, 0); err != nil {
		return fmt.Errorf("descriptor store: %s: %w", name, err)
	}
	return nil
}

// validName is what sd_pid_notify_with_fds(3) takes: 1 to 255 printable ASCII
// characters other than a colon.
func validName(name string) bool {
	return name != "" && len(name) <= 255 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' })
}

// firstFD is the first descriptor that a service manager passes
// (SD_LISTEN_FDS_START in sd-daemon.h).
const firstFD = 3

// Restored are the descriptors that the manager passes to this process, by name
// (sd_listen_fds_with_names(3)); getenv reads the environment. It is to be called
// once, early. What has no name of its own is closed, and of two with one name
// the later.
func Restored(getenv func(string) string) (map[string]*os.File, error) {
	var pid, n int
	if _, err := fmt.Sscan(getenv("LISTEN_PID"), &pid); err != nil || pid != os.Getpid() {
		return nil, nil // none, or not for us
	}
	if _, err := fmt.Sscan(getenv("LISTEN_FDS"), &n); err != nil || n < 0 || n > 4096 {
		return nil, errors.New("LISTEN_FDS is no number of descriptors")
	}
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	files := make(map[string]*os.File)
	for i := range n {
		fd := firstFD + i
		unix.CloseOnExec(fd)
		name := ""
		if i < len(names) {
			name = names[i]
		}
		if name == "" || files[name] != nil {
			_ = unix.Close(fd) // nobody could ask for it
			continue
		}
		files[name] = os.NewFile(uintptr(fd), name)
	}
	return files, nil
}
