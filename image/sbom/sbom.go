// Package sbom says what an image is made of, as an SPDX 2.3 document in JSON.
package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Image is what is described.
type Image struct {
	Name    string // of the image's file, without what it is packed by
	Version string
	Created time.Time // the build's epoch, so that the same image has the same document
	Sum     [32]byte  // SHA-256 of the image
	Debian  []Package
	Modules []Module
}

// Package is a Debian package in the image.
type Package struct{ Name, Version, Arch, Source string }

// Module is a Go module in one of our programs.
type Module struct{ Path, Version string }

// Modules lists the modules of Go programs, each once, the standard library as
// "std" with Go's version.
func Modules(programs ...string) ([]Module, error) {
	found := make(map[Module]bool)
	for _, name := range programs {
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("modules of %s: %w", filepath.Base(name), err)
		}
		found[Module{"std", strings.TrimPrefix(info.GoVersion, "go")}] = true
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			found[Module{m.Path, m.Version}] = true
		}
	}
	var all []Module
	for m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Path+" "+a.Version, b.Path+" "+b.Version) })
	return all, nil
}

type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"name"`
	Version   string     `json:"versionInfo"`
	Supplier  string     `json:"supplier,omitempty"`
	Location  string     `json:"downloadLocation"`
	Analyzed  bool       `json:"filesAnalyzed"`
	Source    string     `json:"sourceInfo,omitempty"`
	Checksums []checksum `json:"checksums,omitempty"`
	Refs      []ref      `json:"externalRefs,omitempty"`
	Purpose   string     `json:"primaryPackagePurpose,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const none = "NOASSERTION"

// Marshal writes the document.
func Marshal(i Image) ([]byte, error) {
	sum := hex.EncodeToString(i.Sum[:])
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: i.Name,
		Namespace: "urn:farhand:sbom:" + sum,
		Creation:  creation{i.Created.UTC().Format(time.RFC3339), []string{"Tool: farhand-image-" + i.Version}},
		Packages: []spdxPackage{{
			ID: "SPDXRef-image", Name: i.Name, Version: i.Version, Location: none,
			Checksums: []checksum{{"SHA256", sum}}, Purpose: "OPERATING-SYSTEM",
		}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"}},
	}
	add := func(p spdxPackage, locator string) {
		p.Location = none
		p.Refs = []ref{{"PACKAGE-MANAGER", "purl", locator}}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{"SPDXRef-image", "CONTAINS", p.ID})
	}
	for _, p := range i.Debian {
		one := spdxPackage{ID: id("deb", p.Name, p.Arch), Name: p.Name, Version: p.Version, Supplier: "Organization: Debian"}
		if p.Source != "" {
			one.Source = "built from the source package " + p.Source
		}
		add(one, fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", p.Name, url.QueryEscape(p.Version), p.Arch))
	}
	for _, m := range i.Modules {
		add(spdxPackage{ID: id("go", m.Path, m.Version), Name: m.Path, Version: m.Version},
			fmt.Sprintf("pkg:golang/%s@%s", strings.ToLower(m.Path), url.QueryEscape(m.Version)))
	}
	seen := make(map[string]bool)
	for _, p := range d.Packages {
		if seen[p.ID] {
			return nil, fmt.Errorf("sbom: %s %s is listed twice", p.Name, p.Version)
		}
		seen[p.ID] = true
	}
	b, err := json.MarshalIndent(d, "", "  ")
	return append(b, '\n'), err
}

var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// id makes an identifier of letters, digits, dots and hyphens; what else makes a
// name unique goes into a short sum.
func id(kind string, parts ...string) string {
	whole := strings.Join(parts, "-")
	short := notID.ReplaceAllString(whole, "-")
	if short != whole {
		sum := sha256.Sum256([]byte(whole))
		short += "-" + hex.EncodeToString(sum[:4])
	}
	return "SPDXRef-" + kind + "-" + short
}
