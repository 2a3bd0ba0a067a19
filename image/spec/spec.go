// Package spec reads what a build of the image is asked for beyond its defaults,
// from a short TOML file.
package spec

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"

	"github.com/pelletier/go-toml/v2"
)

// Spec is a build's wishes. The zero value is an image with the defaults.
type Spec struct {
	Packages []string // Debian packages of the image's release, with what they depend on
	Files    []File   // laid over the root
	Relay    string   // what cards use that don't name another; https
	Sizes    Sizes    // of partitions
	Ollama   Ollama   // on the data partition
}

// Ollama is its maker's archive for Linux and the target's architecture, .tgz or
// .tar.zst; no Tarball is none.
type Ollama struct {
	Tarball string // here; relative to the spec
	SHA256  string // of it, lower-case hex
}

// File is one to be put into the root.
type File struct {
	Path string // absolute, in the image
	From string // here; relative to the spec
	Mode os.FileMode
}

// Sizes of partitions in MiB.
type Sizes struct {
	Boot, System int
	// Data is that of the data partition in the image; on a machine it grows to the
	// disk's end. 0: as much as what is on it takes.
	Data int
}

// Default sizes. A system has room to grow in updates, and lies with what is
// between two partitions of an MBR, 1 MiB, as far before its copy as a dictionary
// of 384 MiB reaches: the next longer one of LZMA2's has 512.
const (
	BootMiB   = 96
	SystemMiB = 383
	DataMiB   = 64 // of one that holds nothing

	mostMiB     = 448 // so that a decoder's 1 GiB suffices for a dictionary that reaches the other slot
	mostDataMiB = 16 << 10
)

var (
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	sum         = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// beside is where a file that a spec names is.
func beside(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// Read reads a spec. No name is no wishes.
func Read(name string) (Spec, error) {
	s := Spec{Sizes: Sizes{Boot: BootMiB, System: SystemMiB}}
	if name == "" {
		return s, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	if err := s.parse(b, filepath.Dir(name)); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func (s *Spec) parse(b []byte, dir string) error {
	var raw struct {
		Packages []string `toml:"packages"`
		Relay    string   `toml:"relay"`
		Sizes    struct {
			Boot   int `toml:"boot_mib"`
			System int `toml:"system_mib"`
			Data   int `toml:"data_mib"`
		} `toml:"sizes"`
		Ollama struct {
			Tarball string `toml:"tarball"`
			SHA256  string `toml:"sha256"`
		} `toml:"ollama"`
		Files []struct {
			Path string `toml:"path"`
			From string `toml:"from"`
			Mode string `toml:"mode"`
		} `toml:"files"`
	}
	if err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(&raw); err != nil {
		return err
	}
	s.Packages, s.Relay = raw.Packages, raw.Relay
	for _, p := range s.Packages {
		if !packageName.MatchString(p) {
			return fmt.Errorf("packages: %q is no Debian package's name", p)
		}
	}
	if s.Relay != "" {
		if u, err := url.Parse(s.Relay); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("relay: %q is no https address", s.Relay)
		}
	}
	for name, size := range map[string]struct {
		asked, most int
		to          *int
	}{
		"boot_mib": {raw.Sizes.Boot, mostMiB, &s.Sizes.Boot}, "system_mib": {raw.Sizes.System, mostMiB, &s.Sizes.System},
		"data_mib": {raw.Sizes.Data, mostDataMiB, &s.Sizes.Data},
	} {
		switch {
		case size.asked == 0:
		case size.asked < 64 || size.asked > size.most:
			return fmt.Errorf("sizes: %s must be 64 to %d, not %d", name, size.most, size.asked)
		default:
			*size.to = size.asked
		}
	}
	if o := raw.Ollama; o.Tarball != "" || o.SHA256 != "" {
		if o.Tarball == "" || !sum.MatchString(o.SHA256) {
			return errors.New("ollama: it takes a tarball and its sha256, 64 lower-case hexadecimal digits")
		}
		s.Ollama = Ollama{beside(dir, o.Tarball), o.SHA256}
	}
	for _, f := range raw.Files {
		file := File{Path: path.Clean(f.Path), From: beside(dir, f.From), Mode: 0o644}
		if !path.IsAbs(f.Path) || file.Path == "/" {
			return fmt.Errorf("files: path %q isn't absolute", f.Path)
		}
		if f.From == "" {
			return errors.New("files: " + f.Path + " has no from")
		}
		if f.Mode != "" {
			var mode uint32
			if _, err := fmt.Sscanf(f.Mode, "%o", &mode); err != nil || mode > 0o777 {
				return fmt.Errorf("files: mode %q of %s is none like \"0755\"", f.Mode, f.Path)
			}
			file.Mode = os.FileMode(mode)
		}
		s.Files = append(s.Files, file)
	}
	return nil
}
