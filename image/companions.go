package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"farhand/image/bmap"
	"farhand/image/disk"
	"farhand/image/imager"
	"farhand/image/sbom"
	"farhand/internal/apt"
)

// description is what Imager shows.
const description = "Makes a Raspberry Pi the far hand of an agent: GPIO, I2C, SPI, serial, USB, printers, files and a shell over one outbound connection."

// Companions writes what belongs to an image beside its compressed file: the
// block map that flashing goes by, checksums, what the image is made of, and, for
// a Raspberry Pi, the manifest for its Imager.
func Companions(ctx context.Context, o Options, b Built, c Compressed) error {
	f, err := os.Open(b.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	ranges, err := b.Plan.Content()
	if err != nil {
		return err
	}
	var content []bmap.Extent
	for _, r := range ranges {
		content = append(content, bmap.Extent(r))
	}
	m, err := bmap.Make(ctx, f, c.Size, disk.Block, content)
	if err != nil {
		return err
	}
	text := m.Marshal()
	packed, err := sum(c.Path)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(b.Path), ".img")
	modules, err := sbom.Modules(o.Daemon, o.Init)
	if err != nil {
		return err
	}
	made, err := sbom.Marshal(sbom.Image{Name: filepath.Base(b.Path), Version: o.Version, Created: o.Epoch, Sum: c.Sum, Debian: debian(b.Root.Packages), Modules: modules})
	if err != nil {
		return err
	}
	beside := map[string][]byte{
		name + ".img.bmap": text, name + ".spdx.json": made,
		name + ".img.xz.sha256": fmt.Appendf(nil, "%s  %s\n", hex.EncodeToString(packed[:]), filepath.Base(c.Path)),
		name + ".img.sha256":    fmt.Appendf(nil, "%s  %s\n", hex.EncodeToString(c.Sum[:]), filepath.Base(b.Path)),
	}
	if o.Target.Imager {
		at, err := address(o.From, c.Path)
		if err != nil {
			return err
		}
		beside[name+imager.Extension], err = imager.Marshal(imager.Image{
			Name: "Farhand " + o.Version, Description: description, URL: at,
			Size: c.Size, Sum: c.Sum, Packed: c.Packed, PackedSum: packed, Released: o.Epoch.In(time.UTC),
		})
		if err != nil {
			return err
		}
	}
	dir := filepath.Dir(b.Path)
	for file, content := range beside {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// address is the URL of a file: in the folder that has the URL from, or else
// where the file lies.
func address(from, file string) (string, error) {
	if from != "" {
		return url.JoinPath(from, filepath.Base(file))
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String(), nil
}

func sum(name string) (s [sha256.Size]byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return s, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// debian says of each package what the bill of materials wants. The
// architecture stands in its file's name.
func debian(packages []apt.Package) []sbom.Package {
	var all []sbom.Package
	for _, p := range packages {
		arch := strings.TrimSuffix(p.File[strings.LastIndexByte(p.File, '_')+1:], ".deb")
		all = append(all, sbom.Package{Name: p.Name, Version: p.Version, Arch: arch})
	}
	return all
}
