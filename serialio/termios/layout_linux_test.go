package termios

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestLayout compares with linux/serial.h and asm-generic/termios.h.
func TestLayout(t *testing.T) {
	var s serialStruct
	if n := unsafe.Sizeof(s); n != 72 {
		t.Errorf("struct serial_struct has %d bytes, want 72", n)
	}
	if n := unsafe.Offsetof(s.closingWait); n != 40 {
		t.Errorf("closing_wait is at %d, want 40", n)
	}
	if n := unsafe.Offsetof(s.flags); n != 16 {
		t.Errorf("flags is at %d, want 16", n)
	}
	var r RS485
	if n := unsafe.Sizeof(r); n != 32 {
		t.Errorf("struct serial_rs485 has %d bytes, want 32", n)
	}
	if a, b := unsafe.Offsetof(r.DelayBefore), unsafe.Offsetof(r.DelayAfter); a != 4 || b != 8 {
		t.Errorf("the delays are at %d and %d, want 4 and 8", a, b)
	}
	for name, pair := range map[string][2]int{
		"DTR": {DTR, unix.TIOCM_DTR}, "RTS": {RTS, unix.TIOCM_RTS}, "CTS": {CTS, unix.TIOCM_CTS},
		"DCD": {DCD, unix.TIOCM_CAR}, "RI": {RI, unix.TIOCM_RNG}, "DSR": {DSR, unix.TIOCM_DSR},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %#x, the kernel's is %#x", name, pair[0], pair[1])
		}
	}
}

// TestPTYHasNone is what the kernel says about lines that aren't there.
func TestPTYHasNone(t *testing.T) {
	master, node, err := OpenPTY()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := Modem(fd); err != unix.ENOTTY {
		t.Errorf("Modem: %v", err)
	}
	if err := SetModem(fd, DTR, true); err != unix.ENOTTY {
		t.Errorf("SetModem: %v", err)
	}
	if err := NoClosingWait(fd); err == nil {
		t.Error("a pseudo-terminal has a closing wait")
	}
	if _, err := LowLatency(fd); err == nil {
		t.Error("a pseudo-terminal has a low latency")
	}
	if err := SetLowLatency(fd, true); err == nil {
		t.Error("a pseudo-terminal takes a low latency")
	}
	if _, err := GetRS485(fd); err == nil {
		t.Error("a pseudo-terminal has RS-485")
	}
	if _, err := SetRS485(fd, RS485{Flags: RS485Enabled}); err == nil {
		t.Error("a pseudo-terminal takes RS-485")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !IsPTY(st.Rdev) {
		t.Errorf("%s is none, %v", node, err)
	}
	if err := unix.Stat("/dev/null", &st); err != nil || IsPTY(st.Rdev) {
		t.Errorf("/dev/null is one, %v", err)
	}
}
