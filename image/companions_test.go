package image

import (
	"path/filepath"
	"testing"
)

// The manifest's URL is where people get the image, or else where it lies.
func TestAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with space")
	for from, want := range map[string]string{
		"https://example.org/images/": "https://example.org/images/a.img.xz",
		"https://example.org/images":  "https://example.org/images/a.img.xz",
		"":                            "file://" + filepath.Dir(dir) + "/with%20space/a.img.xz",
	} {
		if got, err := address(from, filepath.Join(dir, "a.img.xz")); err != nil || got != want {
			t.Errorf("from %q: %q, %v", from, got, err)
		}
	}
}
