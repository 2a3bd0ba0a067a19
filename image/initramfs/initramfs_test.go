package initramfs

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const modulesDep = `kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko
kernel/fs/jbd2/jbd2.ko:
kernel/fs/mbcache.ko:
kernel/drivers/mmc/host/sdhci-iproc.ko: kernel/drivers/mmc/host/sdhci-pltfm.ko kernel/drivers/mmc/host/sdhci.ko
kernel/drivers/mmc/host/sdhci-pltfm.ko: kernel/drivers/mmc/host/sdhci.ko
kernel/drivers/mmc/host/sdhci.ko:
`

func TestOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "modules.dep")
	if err := os.WriteFile(file, []byte(modulesDep), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := readIndex(file)
	if err != nil {
		t.Fatal(err)
	}
	order := x.order([]string{"sdhci_iproc", "ext4", "none_such", "jbd2"})
	before := func(a, b string) {
		t.Helper()
		at := func(name string) int {
			return slices.IndexFunc(order, func(f string) bool { return strings.HasPrefix(filepath.Base(f), name+".ko") })
		}
		if at(a) < 0 || at(a) > at(b) {
			t.Errorf("%s comes after %s in %q", a, b, order)
		}
	}
	before("sdhci", "sdhci-pltfm")
	before("sdhci-pltfm", "sdhci-iproc")
	before("jbd2", "ext4")
	before("mbcache", "ext4")
	if len(order) != 6 {
		t.Errorf("%q", order)
	}
}

// The same inputs give the same archive.
func TestBuild(t *testing.T) {
	tree := t.TempDir()
	dir := filepath.Join(tree, "usr/lib/modules/7.3.4/kernel/fs/squashfs")
	program := filepath.Join(tree, "init")
	for name, text := range map[string]string{
		filepath.Join(dir, "squashfs.ko"): "a module", program: "a program",
		filepath.Join(tree, "usr/lib/modules/7.3.4/modules.dep"): "kernel/fs/squashfs/squashfs.ko:\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := func() []byte {
		t.Helper()
		var b bytes.Buffer
		if err := Build(t.Context(), Options{Root: tree, Kernel: "7.3.4", Init: program, Epoch: time.Unix(1790000000, 0)}, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first := build()
	if !bytes.Equal(first, build()) {
		t.Error("two builds differ")
	}
	z, err := zstd.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a program", "a module", "squashfs.ko\n", "1790000000", "TRAILER!!!"} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("the archive lacks %q", want)
		}
	}
}
