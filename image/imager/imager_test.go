package imager

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The rules of Imager's schema, as far as a list with one image meets them:
// nothing but imager and os_list at the top, every required key, no key that it
// doesn't know.
func TestSchema(t *testing.T) {
	b, err := Marshal(Image{
		Name: "Farhand 1.2.3 (64-bit)", Description: "d", URL: "https://example.org/farhand.img.xz", Website: "https://example.org",
		Size: 1 << 30, Sum: [32]byte{1}, Packed: 60 << 20, PackedSum: [32]byte{2}, Released: time.Unix(1_790_000_000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]json.RawMessage
	var list []map[string]any
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(top["os_list"], &list); err != nil || len(top) != 2 || len(list) != 1 {
		t.Fatalf("top level: %v, %d images, %v", top, len(list), err)
	}
	e := list[0]
	required := []string{"name", "description", "icon", "url", "extract_size", "extract_sha256", "image_download_size", "release_date", "devices"}
	optional := []string{"image_download_sha256", "init_format", "website", "architecture", "capabilities"}
	for _, key := range required {
		if e[key] == nil {
			t.Errorf("no %s", key)
		}
	}
	for key := range e {
		if !slices.Contains(required, key) && !slices.Contains(optional, key) {
			t.Errorf("%s isn't known", key)
		}
	}
	for key, form := range map[string]string{
		"extract_sha256": `^[0-9a-f]{64}$`, "image_download_sha256": `^[0-9a-f]{64}$`, "release_date": `^2026-09-21$`,
		"init_format": `^(none|systemd|cloudinit|cloudinit-rpi|rpi-preseed)$`, "architecture": `^(armel|armhf|armv8)$`, "icon": `^(https|data):`,
	} {
		if s, _ := e[key].(string); !regexp.MustCompile(form).MatchString(s) {
			t.Errorf("%s is %q", key, s)
		}
	}
	known := []string{"rpi_connect", "secure_boot", "passwordless_sudo", "i2c", "spi", "onewire", "serial", "usb_otg"}
	for _, c := range e["capabilities"].([]any) {
		if !slices.Contains(known, c.(string)) {
			t.Errorf("capability %v isn't known", c)
		}
	}
	devices := e["devices"].([]any)
	for _, d := range devices {
		if !strings.HasSuffix(d.(string), "-64bit") {
			t.Errorf("device %v can't run it", d)
		}
	}
	if len(devices) != 3 || e["extract_size"].(float64) != 1<<30 {
		t.Errorf("%v", e)
	}
	if _, err := Marshal(Image{Name: "x", Description: "y", URL: "https://example.org/z"}); err == nil {
		t.Error("a manifest without checksum is written")
	}
}

// Imager begins with the board: it shows those of the manifest, then the images
// that share a tag with the one that was chosen, and asks for the interfaces
// that both are capable of.
func TestBoards(t *testing.T) {
	b, err := Marshal(Image{Name: "n", Description: "d", URL: "file:///images/n.img.xz", Size: 1, Sum: [32]byte{1}, Packed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Imager map[string][]map[string]any
		List   []struct{ Devices, Capabilities []string } `json:"os_list"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	known := []string{"name", "tags", "icon", "description", "matching_type", "architecture", "capabilities"}
	names := make(map[string]bool)
	for _, d := range m.Imager["devices"] {
		for key := range d {
			if !slices.Contains(known, key) {
				t.Errorf("%v: %s isn't known", d["name"], key)
			}
		}
		names[d["name"].(string)] = true
		for _, tag := range d["tags"].([]any) {
			if !slices.Contains(m.List[0].Devices, tag.(string)) {
				t.Errorf("who chooses %v is not shown the image", d["name"])
			}
		}
		for _, want := range []string{"i2c", "spi", "onewire", "serial"} {
			if !slices.Contains(d["capabilities"].([]any), any(want)) || !slices.Contains(m.List[0].Capabilities, want) {
				t.Errorf("who chooses %v is not asked for %s", d["name"], want)
			}
		}
		if d["description"] == "" || d["matching_type"] != "exclusive" {
			t.Errorf("%v", d)
		}
	}
	if len(m.Imager) != 1 || len(names) != 4 || len(m.Imager["devices"]) != 4 {
		t.Errorf("the boards are %v of %v", names, m.Imager)
	}
}

func TestAddress(t *testing.T) {
	image := Image{Name: "n", Description: "d", Size: 1, Sum: [32]byte{1}, Packed: 1}
	for at, want := range map[string]bool{
		"https://example.org/a.img.xz": true, "http://localhost:8000/a.img.xz": true, "file:///a%20b/a.img.xz": true,
		"a.img.xz": false, "/images/a.img.xz": false, "https:///a.img.xz": false, "file://host/a.img.xz": false, "ftp://example.org/a": false, "https://%zz/": false,
	} {
		image.URL = at
		if _, err := Marshal(image); (err == nil) != want {
			t.Errorf("%s: %v", at, err)
		}
	}
}
