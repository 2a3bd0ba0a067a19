package usb

import (
	"farhand/device"
	"farhand/usb/usbfs"
)

// Open opens the device's node.
func (System) Open(d device.Descriptor) (Handle, error) {
	f, err := usbfs.Open(d.Node)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

// file is a usbfs.File as a Handle.
type file struct{ *usbfs.File }

func (f file) Submit(kind usbfs.Kind, endpoint byte, data []byte, zero bool) (Transfer, error) {
	t, err := f.File.Submit(kind, endpoint, data, zero)
	if err != nil {
		return nil, err
	}
	return t, nil
}
