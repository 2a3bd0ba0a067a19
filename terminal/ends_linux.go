package terminal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openEnds makes a pseudo-terminal, or three pipes.
func openEnds(pty bool, z size) (ends, programEnds, error) {
	if pty {
		own, its, err := openPTY(z)
		return ends{in: own, outEnd: own}, programEnds{Files{In: its, Out: its, Err: its, Terminal: true}}, err
	}
	var own ends
	var its programEnds
	for _, x := range []struct {
		own  *End
		its  **os.File
		ours int // which end of the pipe: 0 reads
	}{{&own.in, &its.In, 1}, {&own.outEnd, &its.Out, 0}, {&own.errEnd, &its.Err, 0}} {
		f, of, err := pipe(x.ours)
		if err != nil {
			own.close()
			its.close()
			return ends{}, programEnds{}, err
		}
		*x.own, *x.its = f, of
	}
	return own, its, nil
}

// pipe makes a pipe, of which one end is ours: it doesn't block a thread, as the
// program's end may.
func pipe(ours int) (own, its *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe of a program: %w", err)
	}
	if err := unix.SetNonblock(fds[ours], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("pipe of a program: %w", err)
	}
	return os.NewFile(uintptr(fds[ours]), "pipe"), os.NewFile(uintptr(fds[1-ours]), "pipe"), nil
}

// openPTY makes a pseudo-terminal, pty(7): our end and the program's.
func openPTY(z size) (own, its *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	own = os.NewFile(uintptr(fd), "terminal")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		own.Close()
		return nil, nil, fmt.Errorf("unlock a terminal: %w", err)
	}
	// By the descriptor, since /dev/pts may be another's in our view of the mounts
	// (ioctl_tty(2), since Linux 4.13).
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		own.Close()
		return nil, nil, fmt.Errorf("open the program's end of a terminal: %w", errno)
	}
	its = os.NewFile(peer, "terminal")
	// Erasing goes by characters, not by bytes, before a shell says so.
	modes, err := unix.IoctlGetTermios(int(peer), unix.TCGETS)
	if err == nil {
		modes.Iflag |= unix.IUTF8
		err = unix.IoctlSetTermios(int(peer), unix.TCSETS, modes)
	}
	if err := errors.Join(err, setSize(own, z)); err != nil {
		own.Close()
		its.Close()
		return nil, nil, fmt.Errorf("set a terminal up: %w", err)
	}
	return own, its, nil
}

func setSize(f *os.File, z size) error {
	return control(f, func(fd int) error {
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(z.rows), Col: uint16(z.columns)}); err != nil {
			return fmt.Errorf("size of a terminal: %w", err)
		}
		return nil
	})
}

// control does something with the descriptor, which stays as it is.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := conn.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}

// writeNow writes what can be written without waiting, which a key always can:
// a deadline would cost it more than the write.
func writeNow(f *os.File, b []byte) (n int, err error) {
	err = control(f, func(fd int) error {
		n, err = unix.Write(fd, b)
		return err
	})
	if n = max(n, 0); err == unix.EAGAIN || err == unix.EINTR {
		err = nil
	}
	return n, err
}
