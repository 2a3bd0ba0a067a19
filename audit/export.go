package audit

import (
	"archive/zip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"farhand/internal/atomicfile"
)

// Tail returns the last n records of the log, oldest first, as they stand in the
// files, rotated ones included if need be. It needs no key and checks nothing.
func Tail(path string, n int) ([]json.RawMessage, error) {
	files, err := openAll(path)
	defer closeAll(files)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	var lines []json.RawMessage
	for _, f := range slices.Backward(files) {
		if lines, err = tailOf(f, n, lines); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
	}
	slices.Reverse(lines)
	return lines, nil
}

// tailOf appends the last lines of f, newest first, until there are n.
func tailOf(f *os.File, n int, lines []json.RawMessage) ([]json.RawMessage, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end, err := lastNewline(f, fi.Size())
	if err != nil {
		return nil, err
	}
	for end >= 0 && len(lines) < n {
		start, err := lastNewline(f, end)
		if err != nil {
			return nil, err
		}
		if size := end - start - 1; size > 0 && size <= maxRecord {
			line := make([]byte, size)
			if _, err := f.ReadAt(line, start+1); err != nil {
				return nil, err
			}
			if json.Valid(line) {
				lines = append(lines, line)
			}
		}
		end = start
	}
	return lines, nil
}

// manifest is manifest.json of an export, as the Python shim has it.
type manifest struct {
	ExportedAt  string         `json:"exported_at"` // RFC 3339, UTC
	Files       []manifestFile `json:"files"`
	KeyUsername string         `json:"key_username"` // which key signed it
}

type manifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Export writes a zip with the log's files (whole lines only, so that the
// daemon may go on writing), the sealed head, manifest.json and manifest.sig,
// the HMAC-SHA256 of the manifest in hex. It uses constant memory.
func Export(ctx context.Context, w io.Writer, path string, key []byte) error {
	if err := export(ctx, w, path, key); err != nil {
		return fmt.Errorf("audit export: %w", err)
	}
	return nil
}

func export(ctx context.Context, w io.Writer, path string, key []byte) error {
	m := manifest{ExportedAt: time.Now().UTC().Format(time.RFC3339), KeyUsername: "audit_key", Files: []manifestFile{}}
	z := zip.NewWriter(w)
	// The head first, so that it is never ahead of the exported records.
	sealed, err := atomicfile.Read(headPath(path), 2*slotDistance)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := openAll(path)
	defer closeAll(files)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	for _, f := range files {
		entry, err := exportFile(ctx, z, f)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, entry)
	}
	if sealed != nil {
		name := filepath.Base(headPath(path))
		if err := addFile(z, name, sealed); err != nil {
			return err
		}
		sum := sha256.Sum256(sealed)
		m.Files = append(m.Files, manifestFile{name, int64(len(sealed)), hex.EncodeToString(sum[:])})
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	if err := addFile(z, "manifest.json", text); err != nil {
		return err
	}
	if err := addFile(z, "manifest.sig", []byte(hex.EncodeToString(mac.Sum(nil)))); err != nil {
		return err
	}
	return z.Close()
}

func exportFile(ctx context.Context, z *zip.Writer, f *os.File) (manifestFile, error) {
	entry := manifestFile{Name: filepath.Base(f.Name())}
	fi, err := f.Stat()
	if err != nil {
		return entry, err
	}
	end, err := lastNewline(f, fi.Size())
	if err != nil {
		return entry, err
	}
	out, err := z.Create(entry.Name)
	if err != nil {
		return entry, err
	}
	sum := sha256.New()
	entry.Size, err = io.Copy(io.MultiWriter(out, sum), &cancelReader{ctx, io.NewSectionReader(f, 0, end+1)})
	entry.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return entry, err
}

func addFile(z *zip.Writer, name string, content []byte) error {
	out, err := z.Create(name)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	return err
}

// cancelReader ends with the cause when ctx does.
type cancelReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
