package uapi

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structs of linux/gpio.h, in the machine's own byte order.

// chipInfo is struct gpiochip_info.
type chipInfo struct {
	name, label [nameSize]byte
	lines       uint32
}

// lineAttribute is struct gpio_v2_line_attribute.
type lineAttribute struct {
	id    uint32
	_     uint32
	value uint64 // flags, values, or debounce_period_us in the first half
}

// configAttribute is struct gpio_v2_line_config_attribute.
type configAttribute struct {
	attr lineAttribute
	mask uint64
}

// lineConfig is struct gpio_v2_line_config.
type lineConfig struct {
	flags    uint64
	numAttrs uint32
	_        [5]uint32
	attrs    [MaxAttrs]configAttribute
}

// lineRequest is struct gpio_v2_line_request.
type lineRequest struct {
	offsets     [MaxLines]uint32
	consumer    [nameSize]byte
	config      lineConfig
	numLines    uint32
	eventBuffer uint32
	_           [5]uint32
	fd          int32
}

// lineInfo is struct gpio_v2_line_info.
type lineInfo struct {
	name, consumer [nameSize]byte
	offset         uint32
	numAttrs       uint32
	flags          uint64
	attrs          [MaxAttrs]lineAttribute
	_              [4]uint32
}

// infoChanged is struct gpio_v2_line_info_changed.
type infoChanged struct {
	info      lineInfo
	timestamp uint64
	typ       uint32
	_         [5]uint32
}

// lineValues is struct gpio_v2_line_values.
type lineValues struct{ bits, mask uint64 }

// The ioctl numbers: _IOC(direction, 0xB4, number, size of the struct).
const (
	ioc     = 0xb4 << 8
	iocRead = 2 << 30
	iocBoth = 3 << 30

	getChipInfo   = iocRead | unsafe.Sizeof(chipInfo{})<<16 | ioc | 0x01
	getLineInfo   = iocBoth | unsafe.Sizeof(lineInfo{})<<16 | ioc | 0x05
	watchLineInfo = iocBoth | unsafe.Sizeof(lineInfo{})<<16 | ioc | 0x06
	getLine       = iocBoth | unsafe.Sizeof(lineRequest{})<<16 | ioc | 0x07
	unwatchLine   = iocBoth | 4<<16 | ioc | 0x0c
	setConfig     = iocBoth | unsafe.Sizeof(lineConfig{})<<16 | ioc | 0x0d
	getValues     = iocBoth | unsafe.Sizeof(lineValues{})<<16 | ioc | 0x0e
	setValues     = iocBoth | unsafe.Sizeof(lineValues{})<<16 | ioc | 0x0f
)

// eventSize is that of struct gpio_v2_line_event.
const eventSize = int(unsafe.Sizeof(Event{}))

func (c Config) layout(to *lineConfig) error {
	if len(c.Attrs) > MaxAttrs {
		return unix.E2BIG
	}
	to.flags, to.numAttrs = uint64(c.Flags), uint32(len(c.Attrs))
	for i, a := range c.Attrs {
		v := a.Value
		if a.ID == AttrDebounce { // a u32 at the beginning of the union
			*(*uint32)(unsafe.Pointer(&v)) = uint32(a.Value)
		}
		to.attrs[i] = configAttribute{lineAttribute{id: a.ID, value: v}, a.Mask}
	}
	return nil
}

func (i *lineInfo) read() LineInfo {
	info := LineInfo{
		Offset: i.offset, Name: unix.ByteSliceToString(i.name[:]), Consumer: unix.ByteSliceToString(i.consumer[:]),
		Flags: Flags(i.flags),
	}
	for n := range min(i.numAttrs, MaxAttrs) {
		if a := &i.attrs[n]; a.id == AttrDebounce {
			info.DebounceUS = *(*uint32)(unsafe.Pointer(&a.value))
		}
	}
	return info
}
