//go:build !linux

package files

import (
	"context"
	"os"

	"farhand/wire"
)

// Forbidden is what no path may lead to. Here it closes nothing, since nothing
// can be opened.
type Forbidden struct{}

// Root is one directory and what may be done in it. There is none here.
type Root struct{}

func unsupported() error {
	return wire.Errorf(wire.FeatureNotSupported, "files need Linux").With("feature", "files")
}

// NewForbidden never fails here.
func NewForbidden(...string) (*Forbidden, error) { return &Forbidden{}, nil }

// CheckRoot fails with FEATURE_NOT_SUPPORTED.
func (*Forbidden) CheckRoot(string) error { return unsupported() }

// Open fails with FEATURE_NOT_SUPPORTED, and so would every method of a Root.
func Open(string, *Forbidden) (*Root, error) { return nil, unsupported() }

// Path is empty.
func (*Root) Path() string { return "" }

// Close does nothing.
func (*Root) Close() error { return nil }

// OpenDir fails with FEATURE_NOT_SUPPORTED.
func (*Root) OpenDir(context.Context, string) (*os.File, string, error) {
	return nil, "", unsupported()
}

// OpenFile fails with FEATURE_NOT_SUPPORTED.
func (*Root) OpenFile(context.Context, string) (*os.File, int64, error) {
	return nil, 0, unsupported()
}

// Read fails with FEATURE_NOT_SUPPORTED.
func (*Root) Read(context.Context, wire.FileRead, int64) (*wire.FileContents, Trace, error) {
	return nil, Trace{}, unsupported()
}

// Write fails with FEATURE_NOT_SUPPORTED.
func (*Root) Write(context.Context, wire.FileWrite, int64) (Trace, error) {
	return Trace{}, unsupported()
}

// Stat fails with FEATURE_NOT_SUPPORTED.
func (*Root) Stat(context.Context, wire.FileStat) (wire.FileStatResponse, Trace, error) {
	return wire.FileStatResponse{}, Trace{}, unsupported()
}

// List fails with FEATURE_NOT_SUPPORTED.
func (*Root) List(context.Context, wire.FileList) (wire.FileListResponse, Trace, error) {
	return wire.FileListResponse{}, Trace{}, unsupported()
}

// Delete fails with FEATURE_NOT_SUPPORTED.
func (*Root) Delete(context.Context, wire.FileDelete) (Trace, error) {
	return Trace{}, unsupported()
}

// Move fails with FEATURE_NOT_SUPPORTED.
func (*Root) Move(context.Context, wire.FileMove) (Trace, error) {
	return Trace{}, unsupported()
}

// Sweep fails with FEATURE_NOT_SUPPORTED.
func (*Root) Sweep(context.Context) (int, error) { return 0, unsupported() }
