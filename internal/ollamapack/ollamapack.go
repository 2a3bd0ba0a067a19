// Package ollamapack knows the archive in which Ollama's maker gives it out for
// Linux: how it is opened, what of it a board has no use for, and how to make of
// the rest a small archive of the plainest kind, which is what a machine takes
// (internal/ustar).
package ollamapack

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"farhand/internal/elfarch"
)

// Program is the archive's file that is started.
const Program = "bin/ollama"

const (
	// maxUnpacked bounds what an archive unpacks to, bytes: one with all of its
	// libraries for graphics cards has about 5 GB.
	maxUnpacked = 8 << 30
	// maxFiles bounds how many files it has.
	maxFiles = 10_000
)

// Each calls do with each file and link of the maker's archive that a board has a
// use for. name is relative and clean; what a link leads to is as the archive says.
func Each(ctx context.Context, archive io.Reader, do func(name string, h *tar.Header, content io.Reader) error) error {
	z, err := open(Reader{ctx, archive})
	if err != nil {
		return err
	}
	defer z.Close()
	return entries(Reader{ctx, z}, do)
}

func entries(unpacked io.Reader, do func(name string, h *tar.Header, content io.Reader) error) error {
	from := tar.NewReader(unpacked)
	var size int64
	for n := 0; ; n++ {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || left(name) || h.Typeflag == tar.TypeDir { // directories are made for what is in them
			continue
		}
		if size += h.Size; size > maxUnpacked || n > maxFiles {
			return errors.New("it is larger than any archive of Ollama's")
		}
		if err := do(name, h, from); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// left says which files are left out: libraries for graphics cards that no such
// machine has, which make up most of an archive. name is relative and clean.
func left(name string) bool {
	dir, ok := strings.CutPrefix(name, "lib/ollama/")
	if !ok {
		return false
	}
	for _, kind := range []string{"cuda", "rocm", "mlx", "vulkan"} {
		if strings.HasPrefix(dir, kind) {
			return true
		}
	}
	return false
}

// open is what an archive decompresses to, a tar: its maker compresses by gzip or,
// of late, by Zstandard.
func open(r io.Reader) (io.ReadCloser, error) {
	magic := make([]byte, 4)
	if _, err := io.ReadFull(r, magic); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errNoArchive
	} else if err != nil {
		return nil, err
	}
	whole := io.MultiReader(strings.NewReader(string(magic)), r)
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(whole)
	case string(magic) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(whole, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, errNoArchive
}

var errNoArchive = errors.New("it is no .tgz and no .tar.zst")

// Packed is what Pack made.
type Packed struct {
	Original string // SHA-256 of the maker's archive, lower-case hex
	SHA256   string // of the small one
	Size     int64  // of the small one, bytes
	Unpacked int64  // what its files take, bytes
	Arch     string // for which it is, as Go calls it; empty: for another
}

// Pack makes of the maker's archive one that a machine takes: without what left
// says, in the plainest form, and always the same of the same.
func Pack(ctx context.Context, original io.Reader, to io.Writer) (Packed, error) {
	whole, small := newCounting(), newCounting()
	from := io.TeeReader(Reader{ctx, original}, whole)
	z, err := open(from)
	if err != nil {
		return Packed{}, err
	}
	defer z.Close()
	compressed := gzip.NewWriter(io.MultiWriter(to, small))
	out := tar.NewWriter(compressed)
	p := packing{to: out}
	if err := entries(z, p.one); err != nil {
		return Packed{}, err
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return Packed{}, err
	}
	if !p.program {
		return Packed{}, errors.New("it has no program " + Program + ": is it Ollama's archive for Linux?")
	}
	if _, err := io.Copy(io.Discard, from); err != nil { // what is behind the tar counts for the hash
		return Packed{}, err
	}
	return Packed{Original: whole.sum(), SHA256: small.sum(), Size: small.n, Unpacked: p.size, Arch: p.arch}, nil
}

type packing struct {
	to      *tar.Writer
	size    int64
	program bool
	arch    string
}

func (p *packing) one(name string, h *tar.Header, content io.Reader) error {
	out := &tar.Header{Name: name, Typeflag: h.Typeflag, Mode: 0o644, Size: h.Size, Format: tar.FormatUSTAR}
	switch h.Typeflag {
	case tar.TypeReg:
		if h.Mode&0o111 != 0 {
			out.Mode = 0o755
		}
	case tar.TypeSymlink:
		out.Linkname, out.Size = path.Clean(h.Linkname), 0
	case tar.TypeLink: // the same file once more, beside the first
		first := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		if path.Dir(first) != path.Dir(name) {
			return fmt.Errorf("it is one with %s, in another directory", first)
		}
		out.Typeflag, out.Linkname, out.Size = tar.TypeSymlink, path.Base(first), 0
	default:
		return fmt.Errorf("it is of type %q", h.Typeflag)
	}
	if out.Linkname != "" && (path.IsAbs(out.Linkname) || out.Linkname == ".." || strings.HasPrefix(out.Linkname, "../")) {
		return fmt.Errorf("it is a link to %s, which isn't beside or below it", out.Linkname)
	}
	if err := p.to.WriteHeader(out); err != nil {
		return err
	}
	if out.Typeflag != tar.TypeReg {
		return nil
	}
	if name == Program && out.Mode == 0o755 {
		p.program = true
		header := make([]byte, elfarch.HeaderLen)
		n, err := io.ReadFull(content, header)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return err
		}
		p.arch = elfarch.Of(header[:n])
		content = io.MultiReader(strings.NewReader(string(header[:n])), content)
	}
	n, err := io.Copy(p.to, content)
	p.size += n
	return err
}

// counting hashes and counts what is written to it.
type counting struct {
	hash.Hash
	n int64
}

func newCounting() *counting { return &counting{Hash: sha256.New()} }

func (c *counting) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.Hash.Write(b)
}

func (c *counting) sum() string { return hex.EncodeToString(c.Sum(nil)) }

// Reader ends with its context.
type Reader struct {
	Context context.Context
	From    io.Reader
}

func (r Reader) Read(b []byte) (int, error) {
	if err := r.Context.Err(); err != nil {
		return 0, context.Cause(r.Context)
	}
	return r.From.Read(b)
}
