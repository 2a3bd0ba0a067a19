package flash

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"farhand/internal/lazyregexp"
)

// maxSums is how long a file of checksums may be.
const maxSums = 64 << 10

// findSum reads NAME.sha256 if there is one.
func (s *Source) findSum(name string) error {
	beside := name + ".sha256"
	b, info, err := readBeside(beside, maxSums)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if s.sum, err = parseSum(string(b), filepath.Base(name)); err != nil {
		return fmt.Errorf("%s: %w", beside, err)
	}
	s.sumName, s.files = beside, append(s.files, info)
	return nil
}

var (
	// gnuSum is a line as sha256sum writes it, or a checksum alone; a name with
	// strange characters has a backslash in front.
	gnuSum = lazyregexp.New(`^\\?([0-9A-Fa-f]{64})(?:[ \t]+\*?(.+))?$`)
	// bsdSum is one as sha256 of the BSDs and of macOS writes it.
	bsdSum = lazyregexp.New(`^SHA256 ?\((.+)\) ?= ?([0-9A-Fa-f]{64})$`)
)

// parseSum finds the checksum of an image among those of a file. A single one is
// meant whatever name it has: who renames an image renames what lies beside it.
func parseSum(text, image string) (sum [sha256.Size]byte, err error) {
	var all, named []string
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimSpace(line)
		digits, name := "", ""
		if m := gnuSum.FindStringSubmatch(line); m != nil {
			digits, name = m[1], m[2]
		} else if m := bsdSum.FindStringSubmatch(line); m != nil {
			digits, name = m[2], m[1]
		} else {
			continue
		}
		digits = strings.ToLower(digits)
		all = append(all, digits)
		if name[strings.LastIndexAny(name, `/\`)+1:] == image {
			named = append(named, digits)
		}
	}
	if len(all) > 1 {
		all = named
	}
	if len(all) == 0 {
		return sum, fmt.Errorf("there is no SHA-256 of %s in it; fetch it again, or remove it", image)
	}
	if slices.ContainsFunc(all, func(other string) bool { return other != all[0] }) {
		return sum, fmt.Errorf("there are several checksums of %s in it", image)
	}
	b, err := hex.DecodeString(all[0])
	if err != nil {
		return sum, err
	}
	return [sha256.Size]byte(b), nil
}

// Check compares the image's file with the checksum beside it, before anything is
// overwritten for it, and returns the name of that file; empty if there is none.
func (s *Source) Check(ctx context.Context, tell Progress) (name string, err error) {
	if s.sumName == "" {
		return "", nil
	}
	total := s.files[0].Size()
	h := sha256.New()
	r := io.NewSectionReader(s.f, 0, total)
	for done := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := io.CopyN(h, r, step)
		done += n
		tell(Checking, done, total)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
	}
	if got := [sha256.Size]byte(h.Sum(nil)); got != s.sum {
		return "", fmt.Errorf("%s: %w (its SHA-256 is %x, %s says %x)", s.f.Name(), ErrSum, got, s.sumName, s.sum)
	}
	return s.sumName, nil
}

// readBeside reads a file that lies beside an image.
func readBeside(name string, most int64) ([]byte, os.FileInfo, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s: longer than %d bytes", name, most)
	}
	return b, info, err
}
