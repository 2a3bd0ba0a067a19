//go:build !linux

package files

import (
	"context"
	"log/slog"
	"os"
	"time"

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

// Close does nothing here.
func (*Private) Close() error { return nil }

// CheckRoot fails with FEATURE_NOT_SUPPORTED.
func (*Forbidden) CheckRoot(string) error { return unsupported() }

// Open fails with FEATURE_NOT_SUPPORTED, and so would every method of a Root.
func Open(string, *Forbidden, *Private) (*Root, error) { return nil, unsupported() }

// Private is what the owner marked private. Nothing can be read here anyway.
type Private struct{}

// NewPrivate is nil here.
func NewPrivate([]PrivateRule) *Private { return nil }

// CheckRoot fails with FEATURE_NOT_SUPPORTED.
func (*Private) CheckRoot(string) error { return unsupported() }

// Sealed fails with FEATURE_NOT_SUPPORTED.
func (*Private) Sealed(context.Context, bool) error { return unsupported() }

// Stub is a private file in one state. There is none here.
type Stub struct {
	Path, MIME, Digest string
	Size               int64
}

// Stub fails with FEATURE_NOT_SUPPORTED.
func (*Root) Stub(context.Context, string, Preview) (*Stub, Trace, error) {
	return nil, Trace{}, unsupported()
}

// Content fails with FEATURE_NOT_SUPPORTED.
func (*Root) Content(context.Context, *Stub, int64) ([]byte, error) { return nil, unsupported() }

// Shown is the path itself.
func (*Root) Shown(_ context.Context, path string) string { return path }

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

// Piece fails with FEATURE_NOT_SUPPORTED.
func (*Root) Piece(context.Context, wire.TransferRead) (*wire.Attached, Trace, error) {
	return nil, Trace{}, unsupported()
}

// Entries fails with FEATURE_NOT_SUPPORTED.
func (*Root) Entries(context.Context, wire.TransferList) (wire.TransferEntries, Trace, error) {
	return wire.TransferEntries{}, Trace{}, unsupported()
}

// Make fails with FEATURE_NOT_SUPPORTED.
func (*Root) Make(context.Context, wire.TransferMake) (Trace, error) {
	return Trace{}, unsupported()
}

// UploadOptions say how uploads are kept.
type UploadOptions struct {
	Dir  string
	Idle time.Duration
	Log  *slog.Logger
}

// Uploader is on whose behalf a file is uploaded.
type Uploader struct {
	Session, Holder string
	Hold            func() (release func())
}

// Uploads are the files that arrive in pieces. There are none here.
type Uploads struct{}

// NewUploads never fails here.
func NewUploads(UploadOptions) (*Uploads, error) { return &Uploads{}, nil }

// Open fails with FEATURE_NOT_SUPPORTED.
func (*Uploads) Open(context.Context, *Root, Uploader, wire.TransferOpen, []byte) (wire.TransferOpened, Trace, error) {
	return wire.TransferOpened{}, Trace{}, unsupported()
}

// Write fails with FEATURE_NOT_SUPPORTED.
func (*Uploads) Write(context.Context, string, wire.TransferChunk, []byte) error {
	return unsupported()
}

// Commit fails with FEATURE_NOT_SUPPORTED.
func (*Uploads) Commit(context.Context, *Root, string, wire.TransferCommit) (wire.TransferCommitted, Trace, error) {
	return wire.TransferCommitted{}, Trace{}, unsupported()
}

// Abort fails with FEATURE_NOT_SUPPORTED.
func (*Uploads) Abort(string, wire.TransferAbort) (Trace, error) { return Trace{}, unsupported() }

// EndSession does nothing.
func (*Uploads) EndSession(string) {}

// Sweep does nothing.
func (*Uploads) Sweep(context.Context) error { return nil }

// Close does nothing.
func (*Uploads) Close() error { return nil }
