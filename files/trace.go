package files

// MaxLinks is how many symbolic links one path may lead through, the limit of
// the Linux kernel (MAXSYMLINKS, path_resolution(7)).
const MaxLinks = 40

// Trace is what an audit record tells about an operation beside the request.
// Paths are canonical as far as they could be resolved, and as requested
// otherwise. An operation that fails returns what it had got to.
type Trace struct {
	Path    string // all operations but Move
	Src     string // Move
	Dst     string // Move
	Bytes   int64  // bytes of content read or written
	Entries int    // entries listed, or removed
}
