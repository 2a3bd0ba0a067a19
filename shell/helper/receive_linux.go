package helper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"farhand/shell"
)

// readFirst reads a connection's first message and the descriptors that come with
// its first byte. The caller closes them, also after an error.
func readFirst(conn *net.UnixConn) (kind, []byte, []*os.File, error) {
	buf := make([]byte, 64<<10)
	rights := make([]byte, unix.CmsgSpace(4*maxFiles)) // what doesn't fit the kernel closes
	n, rn, _, _, err := conn.ReadMsgUnix(buf, rights)
	if err != nil {
		return 0, nil, nil, err
	}
	files, err := parseRights(rights[:rn])
	if err != nil {
		return 0, nil, files, err
	}
	var header [headerLen]byte
	have := copy(header[:], buf[:n])
	if _, err := io.ReadFull(conn, header[have:]); err != nil {
		return 0, nil, files, err
	}
	k, left, err := parseHeader(header, maxRequest)
	if err != nil {
		return 0, nil, files, err
	}
	rest := buf[have:n]
	if len(rest) > left {
		return 0, nil, files, fmt.Errorf("%w: more than one message", errMalformed)
	}
	// As long as what has come, not as what was announced.
	body := append([]byte(nil), rest...)
	for len(body) < left {
		m, err := conn.Read(buf[:min(len(buf), left-len(body))])
		body = append(body, buf[:m]...)
		if err != nil {
			return 0, nil, files, err
		}
	}
	return k, body, files, nil
}

// parseRights takes the descriptors out of control messages.
func parseRights(b []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, fmt.Errorf("descriptors: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, fmt.Errorf("descriptors: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(fd)))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// ownView is the same directory as this process sees it. The daemon has a mount
// namespace of its own (ProtectSystem=), so its descriptor leads into one of its
// mounts, and there a program couldn't find out where it is (getcwd(2) says
// "(unreachable)"). Where the directory can't be reached by its name, the
// descriptor as it came will do.
func ownView(dir *os.File) (*os.File, error) {
	var given, own unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &given); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	if given.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, fmt.Errorf("%w: the working directory is none", errMalformed)
	}
	if given.Nlink == 0 {
		return nil, shell.ErrDirGone
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return dir, nil
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.EACCES) { // it may be entered though not listed
		fd, err = unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return dir, nil
	}
	if unix.Fstat(fd, &own) != nil || own.Dev != given.Dev || own.Ino != given.Ino {
		unix.Close(fd)
		return dir, nil
	}
	return os.NewFile(uintptr(fd), name), nil
}
