package audit

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"farhand/internal/atomicfile"
)

// LoadKey reads the audit key from path and makes one, readable by the owner
// alone, if there is no such file. A file that others may read, or that doesn't
// hold a key, is refused and never replaced: with another key no record and no
// grant would verify any more.
func LoadKey(path string) ([]byte, error) {
	key, err := ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = make([]byte, KeySize)
	rand.Read(key) // never fails (crypto/rand)
	err = atomicfile.Create(path, key, 0o600)
	if errors.Is(err, fs.ErrExist) { // somebody else was faster
		return ReadKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	return key, nil
}

// ReadKey reads the audit key from path: 32 bytes, or 64 hex digits as the
// Python shim keeps it.
func ReadKey(path string) ([]byte, error) {
	f, err := atomicfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("audit key %s: mode %04o lets others at it; it must be 0600", path, fi.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	if len(b) == KeySize {
		return b, nil
	}
	if key, err := hex.DecodeString(string(bytes.TrimSpace(b))); err == nil && len(key) == KeySize {
		return key, nil
	}
	return nil, fmt.Errorf("audit key %s: holds neither %d bytes nor %d hex digits", path, KeySize, 2*KeySize)
}
