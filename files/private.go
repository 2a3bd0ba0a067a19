package files

import (
	"context"
	"io"

	"farhand/internal/pathglob"
)

// PrivateRule is one entry of the owner's list of what is private.
type PrivateRule struct {
	Pattern pathglob.Pattern
	Named   bool // previews may tell names of columns and keys
	Shown   bool // names of files are no secret
}

// MaxStub is the size of the largest file of which there are stubs, bytes.
const MaxStub = 1 << 30

// Preview looks at the content of a private file for its stub. mime is by the file's
// name, named whether names of columns and keys may be told. An error of it is that
// of the stub.
type Preview func(ctx context.Context, content io.ReaderAt, size int64, mime string, named bool) error

// NotSealed says why others than the daemon's user and root could read what a rule
// without wildcards names, or come to it.
type NotSealed struct {
	Rule string // as in the configuration
	Told string // what of that others may be told
	Why  string
	Do   string // a command that mends it; empty: there is none
}

func (e *NotSealed) Error() string { return e.Rule + ": " + e.Why }
