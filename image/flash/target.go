package flash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// Target is where an image may be written to.
type Target struct {
	Path   string
	Device bool
	Exists bool   // a file that would be replaced; true for a device
	Size   int64  // bytes that are there
	Model  string // of a device; may be empty
	// Removable says that the kernel takes a device for a card or a stick.
	Removable bool
}

// InspectTarget looks at a target without changing it. A device in use is an
// error that says by what.
func InspectTarget(path string) (Target, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if looksLikeDevice(path) {
			return Target{}, fmt.Errorf("there is no device %s", path)
		}
		return Target{Path: path}, nil
	case err != nil:
		return Target{}, err
	case info.Mode().IsRegular():
		return Target{Path: path, Exists: true, Size: info.Size()}, nil
	case info.Mode()&fs.ModeDevice != 0:
		return inspectDevice(path)
	}
	return Target{}, fmt.Errorf("%s is neither a file nor a disk", path)
}

// OpenTarget opens a target for Write. A device is opened so that nobody can
// mount it meanwhile; a file is its user's alone, for it will hold secrets.
func OpenTarget(t Target) (*os.File, error) {
	if t.Device {
		return openDevice(t)
	}
	f, err := os.OpenFile(t.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil && runtime.GOOS != "windows" {
		f.Close()
		return nil, fmt.Errorf("keep others from reading the card's secrets: %w", err)
	}
	return f, nil
}
