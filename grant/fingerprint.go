package grant

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/wire"
)

// Directory is a directory that may be a session's root, as it is now.
type Directory struct {
	Path string // canonical
	// Fingerprints identify it, the strongest first. They are 64 lower-case hex
	// digits each and stay the same over reboots, replugging and renumbering of
	// the disk, and change if the directory is replaced by another of the same
	// name. A grant carries the first; any of them is good when it is verified,
	// so that a grant outlives a kernel that learned a better way to ask, and so
	// that grants of the Python shim (the last one) stay valid.
	Fingerprints []string
}

// identity is what the kernel knows of a directory.
type identity struct {
	device uint64   // st_dev
	inode  uint64   // 0 where the file system makes them up anew at each mount
	birth  string   // seconds.nanoseconds, empty if the file system keeps none
	fs     []string // names of the file system, the most stable first
	legacy uint64   // st_ino as it is
}

// Inspect resolves path and identifies the directory. The path's last component
// may not be a symbolic link, its parents may; we must be able to read, write
// and enter the directory, and its canonical path must be one that HELLO may
// carry. Anything else is DIRECTORY_UNAVAILABLE.
func Inspect(path string) (Directory, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return Directory{}, unavailable(path, "it can't be found")
	}
	if !fi.IsDir() {
		return Directory{}, unavailable(path, "it is not a directory itself")
	}
	real, err := canonical(path)
	if err != nil {
		return Directory{}, unavailable(path, "it can't be resolved")
	}
	if !Presentable(real) {
		return Directory{}, unavailable(path, "its name has characters that the protocol can't carry")
	}
	if !accessible(real) {
		return Directory{}, unavailable(path, "we may not read, write and enter it")
	}
	id, err := identify(real)
	if err != nil {
		return Directory{}, unavailable(path, "it can't be identified")
	}
	return Directory{real, id.fingerprints(real)}, nil
}

func canonical(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func unavailable(path, why string) *wire.Error {
	return wire.Errorf(wire.DirectoryUnavailable, "the directory is not available: %s", why).With("path", path)
}

// Presentable says whether HELLO.allowed_root can carry path: valid UTF-8, at
// most 4096 characters, not blank, no "<" or ">", no control, format, surrogate
// or private characters and no Unicode line separators. The AutoGPT platform
// closes the connection on anything else.
func Presentable(path string) bool {
	if !utf8.ValidString(path) || utf8.RuneCountInString(path) > wire.MaxAllowedRoot || strings.TrimSpace(path) == "" {
		return false
	}
	return !strings.ContainsFunc(path, func(r rune) bool {
		// Unassigned characters (Cn) are refused as well; everything assigned
		// is graphic, a space, or in C.
		return r == '<' || r == '>' || r == '\u2028' || r == '\u2029' || unicode.In(r, unicode.C) || !assigned(r)
	})
}

func assigned(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z)
}

func (id identity) fingerprints(path string) []string {
	var all []string
	for _, fs := range id.fs {
		f := hash(fmt.Sprintf(`{"birth":%s,"fs":%s,"inode":%d,"path":%s}`, asciiJSON(id.birth), asciiJSON(fs), id.inode, asciiJSON(path)))
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return append(all, legacyFingerprint(id.device, id.legacy, path))
}

// legacyFingerprint is the Python shim's.
func legacyFingerprint(device, inode uint64, path string) string {
	return hash(fmt.Sprintf(`{"device":%d,"inode":%d,"path":%s}`, device, inode, asciiJSON(path)))
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
