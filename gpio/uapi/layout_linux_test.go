package uapi

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestLayout compares with what a C compiler makes of linux/gpio.h.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"gpiochip_info", unsafe.Sizeof(chipInfo{}), 68},
		{"gpio_v2_line_config", unsafe.Sizeof(lineConfig{}), 272},
		{"gpio_v2_line_request", unsafe.Sizeof(lineRequest{}), 592},
		{"gpio_v2_line_info", unsafe.Sizeof(lineInfo{}), 256},
		{"gpio_v2_line_event", unsafe.Sizeof(Event{}), 48},
		{"gpio_v2_line_info_changed", unsafe.Sizeof(infoChanged{}), 288},
		{"gpio_v2_line_values", unsafe.Sizeof(lineValues{}), 16},
		{"request.config", unsafe.Offsetof(lineRequest{}.config), 288},
		{"request.fd", unsafe.Offsetof(lineRequest{}.fd), 588},
		{"config.attrs", unsafe.Offsetof(lineConfig{}.attrs), 32},
		{"info.flags", unsafe.Offsetof(lineInfo{}.flags), 72},
		{"changed.timestamp", unsafe.Offsetof(infoChanged{}.timestamp), 256},
		{"event.line_seqno", unsafe.Offsetof(Event{}.LineSeq), 20},
		// _IOWR(0xB4, 0x07, struct gpio_v2_line_request) and so on, worked out by hand.
		{"GET_CHIPINFO", getChipInfo, 0x8044b401},
		{"GET_LINEINFO", getLineInfo, 0xc100b405},
		{"GET_LINEINFO_WATCH", watchLineInfo, 0xc100b406},
		{"GET_LINE", getLine, 0xc250b407},
		{"GET_LINEINFO_UNWATCH", unwatchLine, 0xc004b40c},
		{"LINE_SET_CONFIG", setConfig, 0xc110b40d},
		{"LINE_GET_VALUES", getValues, 0xc010b40e},
		{"LINE_SET_VALUES", setValues, 0xc010b40f},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func TestConfigLayout(t *testing.T) {
	var raw lineConfig
	err := Config{Flags: Input, Attrs: []Attr{{AttrDebounce, 5000, 0b10}, {AttrFlags, uint64(Output), 0b1}}}.layout(&raw)
	if err != nil || raw.numAttrs != 2 || raw.attrs[0].mask != 0b10 || *(*uint32)(unsafe.Pointer(&raw.attrs[0].attr.value)) != 5000 ||
		raw.attrs[1].attr.value != 8 {
		t.Errorf("%+v, %v", raw, err)
	}
	if err := (Config{Attrs: make([]Attr, MaxAttrs+1)}).layout(&raw); !errors.Is(err, unix.E2BIG) {
		t.Errorf("eleven attributes: %v", err)
	}
	info := lineInfo{numAttrs: 1 << 20} // the kernel wouldn't, but it must not make us read beyond
	info.attrs[3] = lineAttribute{id: AttrDebounce, value: raw.attrs[0].attr.value}
	copy(info.name[:], "GPIO17\x00rest")
	if got := info.read(); got.DebounceUS != 5000 || got.Name != "GPIO17" {
		t.Errorf("%+v", got)
	}
}

func TestNotAChip(t *testing.T) {
	c, err := Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("Info: %v", err)
	}
	if _, err := c.Request(Request{Offsets: []uint32{1}}); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("Request: %v", err)
	}
	if _, err := c.Request(Request{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a request of nothing: %v", err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := c.Line(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Line after Close: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := FromFile(r); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("a pipe taken for a line request: %v", err)
	}
	if _, err := r.Read(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("FromFile has left its file open: %v", err)
	}
}
