package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rsc.io/qr"

	"farhand/image/layout"
	"farhand/internal/testenv"
)

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func need(t *testing.T, pkg, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	testenv.Need(t, pkg, err == nil, program+" is not installed")
}

// from hands out copies of a file, whatever partition is asked for.
func from(file string) extract {
	return func(_ context.Context, _ int, path string) error {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o600)
	}
}

func TestDataWell(t *testing.T) {
	need(t, "e2fsprogs", "debugfs")
	tree := t.TempDir()
	shell(t, "mkdir -p "+tree+"/farhand "+tree+"/system; echo 0123456789abcdef0123456789abcdef >"+tree+"/system/machine-id; echo '{}' >"+tree+"/farhand/provision.json")
	for _, c := range []struct{ name, make, stage, err string }{
		{"zeros", "truncate -s 8M @", "nothing yet", ""},
		{"begun", "mke2fs -q -t ext4 -L farnew @ 8M", "being made", ""},
		{"made", "mke2fs -q -t ext4 -L fardata @ 8M", "made", ""},
		{"provisioned", "mke2fs -q -t ext4 -L fardata -d " + tree + " @ 8M", "farhand/provision.json", ""},
		{"begun, and no superblock yet", "truncate -s 8M @; printf x | dd of=@ bs=1 seek=9000 conv=notrunc status=none; printf %s \"" + layout.Begun + "\" | dd of=@ bs=1 seek=$((8*1048576-131072)) conv=notrunc status=none", "being made", ""},
		{"foreign", "mke2fs -q -t ext4 -L other @ 8M", "", "another label"},
		{"rubbish", "truncate -s 8M @; printf x | dd of=@ bs=1 seek=2000 conv=notrunc status=none", "", "no zeros"},
		{"damaged", "mke2fs -q -t ext4 -L fardata -d " + tree + " @ 8M; debugfs -w -R 'clri /farhand' @", "", "e2fsck"},
		{"half a file", "echo '{\"a\":' >" + tree + "/farhand/provision.json; mke2fs -q -t ext4 -L fardata -d " + tree + " @ 8M", "farhand/provision.json", "no JSON"},
		{"half an id", "echo '{}' >" + tree + "/farhand/provision.json; echo 0123 >" + tree + "/system/machine-id; mke2fs -q -t ext4 -L fardata -d " + tree + " @ 8M", "farhand/provision.json", "machine-id"},
	} {
		file := filepath.Join(t.TempDir(), "fs")
		shell(t, strings.ReplaceAll(c.make, "@", file))
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		stage, err := dataWell(t.Context(), from(file), t.TempDir())
		if stage != c.stage || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the stage is %q, %v", c.name, stage, err)
		}
	}
}

func TestPromised(t *testing.T) {
	dir := t.TempDir()
	put := map[string][sha256.Size]byte{"a": sha256.Sum256([]byte("one")), "b": sha256.Sum256(nil)}
	shell(t, "cd "+dir+"; printf one >a; : >b")
	if err := promised(dir, put); err != nil {
		t.Error(err)
	}
	shell(t, "cd "+dir+"; printf on >a")
	if err := promised(dir, put); err == nil || !strings.Contains(err.Error(), "changed a") {
		t.Errorf("half a file: %v", err)
	}
	shell(t, "cd "+dir+"; rm a")
	if err := promised(dir, put); err == nil || !strings.Contains(err.Error(), "took") {
		t.Errorf("no file: %v", err)
	}
}

func TestBootWell(t *testing.T) {
	need(t, "dosfstools", "mkfs.vfat")
	need(t, "mtools", "mcopy")
	file, tree := filepath.Join(t.TempDir(), "fs"), t.TempDir()
	shell(t, "cd "+tree+"; echo a >autoboot.txt; echo b >bootcode.bin; mkfs.vfat -C "+file+" 8192 >/dev/null; mcopy -i "+file+" autoboot.txt bootcode.bin ::")
	d := &device{lane: &lane{run: &run{pristine: map[string][]byte{"autoboot.txt": []byte("a\n"), "bootcode.bin": []byte("b\n")}}}}
	check := func() error { return d.bootWell(t.Context(), from(file), t.TempDir()) }
	if err := check(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "PAIR.PNG"), picture(t, "text")[:200], 0o600); err != nil {
		t.Fatal(err)
	}
	shell(t, "cd "+tree+"; mcopy -i "+file+" PAIR.PNG ::")
	if err := check(); err == nil || !strings.Contains(err.Error(), "half") {
		t.Errorf("half a picture: %v", err)
	}
	shell(t, "cd "+tree+"; echo c >autoboot.txt; mcopy -o -i "+file+" autoboot.txt ::; mdel -i "+file+" ::PAIR.PNG")
	if err := check(); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("another autoboot.txt: %v", err)
	}
	shell(t, "dd if=/dev/zero of="+file+" bs=512 count=1 conv=notrunc status=none")
	if err := check(); err == nil {
		t.Error("a FAT without its first sector is well")
	}
}

// picture has a QR code, as a display would show it.
func picture(t *testing.T, text string) []byte {
	t.Helper()
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		t.Fatal(err)
	}
	const scale, border = 6, 40
	size := code.Size*scale + 2*border
	img := image.NewGray(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			level := color.Gray{255}
			if mx, my := x-border, y-border; mx >= 0 && my >= 0 && code.Black(mx/scale, my/scale) {
				level.Y = 0
			}
			img.SetGray(x, y, level)
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestSees(t *testing.T) {
	p := &pairing{code: "BCDF-GHJK", device: &device{lane: &lane{run: &run{bench: &bench{port: 7443}}}}}
	if err := p.sees(picture(t, "https://10.0.2.2:7443/device?user_code=BCDF-GHJK")); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"https://10.0.2.2:7443/device?user_code=BCDF-GHJL", "https://elsewhere/device?user_code=BCDF-GHJK", "BCDF-GHJK"} {
		if err := p.sees(picture(t, wrong)); err == nil {
			t.Errorf("%s is what the code says", wrong)
		}
	}
	if err := p.sees([]byte("no picture")); err == nil {
		t.Error("there is a code in what is no picture")
	}
}
