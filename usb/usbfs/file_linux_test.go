package usbfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"farhand/internal/leak"
)

// TestLayout compares with linux/usbdevice_fs.h, as a C compiler lays it out on
// amd64 and arm64.
func TestLayout(t *testing.T) {
	var u urb
	var c disconnectClaim
	var i driverIoctl
	for _, x := range []struct {
		name      string
		got, want uintptr
	}{
		{"sizeof usbdevfs_urb", unsafe.Sizeof(u), 56},
		{"urb.status", unsafe.Offsetof(u.status), 4},
		{"urb.flags", unsafe.Offsetof(u.flags), 8},
		{"urb.buffer", unsafe.Offsetof(u.buffer), 16},
		{"urb.buffer_length", unsafe.Offsetof(u.length), 24},
		{"urb.actual_length", unsafe.Offsetof(u.actual), 28},
		{"urb.usercontext", unsafe.Offsetof(u.userContext), 48},
		{"sizeof usbdevfs_getdriver", unsafe.Sizeof(getDriver{}), 260},
		{"sizeof usbdevfs_disconnect_claim", unsafe.Sizeof(c), 264},
		{"disconnect_claim.driver", unsafe.Offsetof(c.driver), 8},
		{"sizeof usbdevfs_ioctl", unsafe.Sizeof(i), 16},
		{"USBDEVFS_SUBMITURB", reqSubmit, 0x8038550a},
		{"USBDEVFS_DISCARDURB", reqDiscard, 0x550b},
		{"USBDEVFS_REAPURBNDELAY", reqReapNoDelay, 0x4008550d},
		{"USBDEVFS_CLAIMINTERFACE", reqClaim, 0x8004550f},
		{"USBDEVFS_GETDRIVER", reqGetDriver, 0x41045508},
		{"USBDEVFS_IOCTL", reqDriver, 0xc0105512},
		{"USBDEVFS_DISCONNECT_CLAIM", reqDisconnectClaim, 0x8108551b},
	} {
		if x.got != x.want {
			t.Errorf("%s is %#x, want %#x", x.name, x.got, x.want)
		}
	}
}

func TestOpenWhatIsNone(t *testing.T) {
	leak.Check(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]error{
		"/dev/null":            syscall.ENOTTY,
		plain:                  syscall.ENOTTY,
		plain + "/there":       syscall.ENOTDIR,
		"/dev/bus/usb/999/999": fs.ErrNotExist,
	} {
		f, err := Open(node)
		if !errors.Is(err, want) {
			t.Errorf("opening %s answers %v, want %v", node, err, want)
		}
		if f != nil {
			f.Close()
		}
	}
}
