//go:build !linux

package uapi

import (
	"errors"
	"os"
	"time"
)

// ChipInfo fails: the character device is Linux's own.
func ChipInfo(string) (Chip, error) { return Chip{}, errors.ErrUnsupported }

// ChipFile is an open chip: there are none here.
type ChipFile struct{}

// Open fails: the character device is Linux's own.
func Open(string) (*ChipFile, error) { return nil, errors.ErrUnsupported }

// Info fails.
func (*ChipFile) Info() (Chip, error) { return Chip{}, errors.ErrUnsupported }

// Line fails.
func (*ChipFile) Line(uint32) (LineInfo, error) { return LineInfo{}, errors.ErrUnsupported }

// Request fails.
func (*ChipFile) Request(Request) (*Lines, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*ChipFile) Close() error { return nil }

// Lines are requested lines: there are none here.
type Lines struct{}

// FromFile fails, and closes the file.
func FromFile(f *os.File) (*Lines, error) { return nil, errors.Join(errors.ErrUnsupported, f.Close()) }

// Get fails.
func (*Lines) Get(uint64) (uint64, error) { return 0, errors.ErrUnsupported }

// Set fails.
func (*Lines) Set(uint64, uint64) error { return errors.ErrUnsupported }

// SetConfig fails.
func (*Lines) SetConfig(Config) error { return errors.ErrUnsupported }

// ReadEvents fails.
func (*Lines) ReadEvents([]Event) (int, error) { return 0, errors.ErrUnsupported }

// SetReadDeadline fails.
func (*Lines) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// Descriptor fails.
func (*Lines) Descriptor(func(uintptr) error) error { return errors.ErrUnsupported }

// Close does nothing.
func (*Lines) Close() error { return nil }

// Monotonic is 0: nothing is stamped here.
func Monotonic() uint64 { return 0 }
