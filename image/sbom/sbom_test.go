package sbom

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
)

func TestDocument(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	modules, err := Modules(self, self)
	if err != nil || len(modules) == 0 {
		t.Fatalf("modules of this test: %v, %v", modules, err)
	}
	i := Image{
		Name: "farhand-1.2.3-arm64.img", Version: "1.2.3", Created: time.Unix(1_790_000_000, 0), Sum: [32]byte{1, 2},
		Debian:  []Package{{"libstdc++6", "14.2.0-19", "arm64", "gcc-14"}, {"libc6", "2:2.41-12~deb13u1", "arm64", "glibc"}, {"libstdc--6", "1", "arm64", ""}},
		Modules: append(modules, Module{"example.org/Big/mod", "v1.2.3"}),
	}
	b, err := Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Marshal(i); !bytes.Equal(again, b) {
		t.Error("a second document is another")
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	// What SPDX 2.3 asks of every document and package.
	form := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	if d.Version != "SPDX-2.3" || d.License != "CC0-1.0" || d.ID != "SPDXRef-DOCUMENT" || d.Namespace == "" || d.Creation.Created != "2026-09-21T14:13:20Z" || len(d.Creation.Creators) != 1 {
		t.Errorf("the document's head: %+v", d)
	}
	ids := []string{"SPDXRef-DOCUMENT"}
	var locators []string
	for _, p := range d.Packages {
		if !form.MatchString(p.ID) || slices.Contains(ids, p.ID) || p.Name == "" || p.Location == "" {
			t.Errorf("package %+v", p)
		}
		ids = append(ids, p.ID)
		for _, r := range p.Refs {
			locators = append(locators, r.Locator)
		}
	}
	for _, r := range d.Relationships {
		if !slices.Contains(ids, r.From) || !slices.Contains(ids, r.To) {
			t.Errorf("relationship %+v leads nowhere", r)
		}
	}
	if want := len(i.Debian) + len(i.Modules) + 1; len(d.Packages) != want || len(d.Relationships) != want {
		t.Errorf("%d packages and %d relationships, want %d", len(d.Packages), len(d.Relationships), want)
	}
	for _, want := range []string{"pkg:deb/debian/libc6@2%3A2.41-12~deb13u1?arch=arm64", "pkg:golang/example.org/big/mod@v1.2.3"} {
		if !slices.Contains(locators, want) {
			t.Errorf("no %s in %q", want, locators)
		}
	}
	i.Debian = append(i.Debian, i.Debian[0])
	if _, err := Marshal(i); err == nil {
		t.Error("a package that is listed twice is written")
	}
	if _, err := Modules("/dev/null"); err == nil {
		t.Error("what is no Go program has modules")
	}
}
