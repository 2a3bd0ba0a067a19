package provision

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"farhand/internal/atomicfile"
)

func readLimited(path string, most int64) ([]byte, error) {
	b, err := atomicfile.Read(path, most)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// trim drops what stands around a value in /sys and /proc: line ends, and the
// NUL that ends a device tree's text.
func trim(b []byte) string { return strings.Trim(string(b), "\x00 \t\r\n") }

// install puts a file in its place with owner and mode, durably. It follows no
// link in the place of the file, so it may lie in a directory of its owner.
func (s *System) install(path string, data []byte, mode os.FileMode, uid, gid int) error {
	full := s.path(path)
	var r [8]byte
	rand.Read(r[:]) // never fails (crypto/rand)
	temp := full + ".tmp-" + hex.EncodeToString(r[:])
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	switch {
	case err != nil:
	case s.Chown != nil:
		err = s.Chown(temp, uid, gid)
	default:
		err = f.Chown(uid, gid) // not by its name, which the directory's owner can give to another
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, full)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(full))
	}
	if err != nil {
		os.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// names are the first fields of a file like /etc/passwd.
func (s *System) names(path string) []string {
	b, err := readLimited(s.path(path), 1<<20)
	if err != nil {
		return nil
	}
	var all []string
	for line := range bytes.Lines(b) {
		if name, _, ok := strings.Cut(string(line), ":"); ok && name != "" {
			all = append(all, name)
		}
	}
	return all
}
