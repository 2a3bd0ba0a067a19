package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNewest(t *testing.T) {
	got := newest([]string{
		"7.2.12+deb13-amd64", "7.3.4+deb13-amd64", "7.3.10+deb13-amd64", "7.3.9+deb13-amd64",
		"7.9.1+deb13-cloud-amd64", "7.9.1+deb13-rt-amd64", "fetch-1234", "", "7.4+deb13-amd64",
	})
	if got != "7.3.10+deb13-amd64" {
		t.Errorf("the newest is %q", got)
	}
	if got := newest([]string{"6.12.117+deb13-amd64", "7.2.12+deb13-amd64"}); got != "" {
		t.Errorf("%q is too old and was taken", got)
	}
}

func TestDepends(t *testing.T) {
	for info, want := range map[string][]string{
		"license=GPL\x00depends=u_serial,libcomposite\x00name=usb_f_acm\x00": {"u_serial", "libcomposite"},
		"depends=\x00name=usb_common\x00":                                    nil,
		"softdepends=x\x00":                                                  nil,
	} {
		if got := depends([]byte(info)); !slices.Equal(got, want) {
			t.Errorf("%q depends on %q", info, got)
		}
	}
}

func TestCached(t *testing.T) {
	cache := t.TempDir()
	if _, err := Cached(filepath.Join(cache, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no cache answers %v", err)
	}
	for _, d := range []string{"fetch-1", "7.3.4+deb13-amd64", "7.3.3+deb13-amd64"} {
		if err := os.Mkdir(filepath.Join(cache, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Cached(cache)
	if err != nil || k.Release != "7.3.4+deb13-amd64" {
		t.Errorf("the cache has %+v %v", k, err)
	}
}
