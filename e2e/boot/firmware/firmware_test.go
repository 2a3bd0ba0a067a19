package firmware

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"farhand/internal/testenv"
)

const autoboot = "[all]\ntryboot_a_b=1\nboot_partition=2\n[tryboot]\nboot_partition=3\n"

func kernel(name string) []byte {
	k := make([]byte, 128)
	copy(k[56:], "ARM\x64")
	copy(k[64:], name)
	return k
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func files(names map[string]string) fstest.MapFS {
	m := make(fstest.MapFS)
	for name, text := range names {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// slot is a boot partition that every board can boot.
func slot(name string) fstest.MapFS {
	m := files(map[string]string{
		"config.txt":  "arm_64bit=1\nenable_uart=1\nkernel=kernel8.img\ninitramfs initrd.img followkernel\n[pi5]\nkernel=five.img\n[all]\ninclude extra.txt\n",
		"extra.txt":   "[pi3]\ndtoverlay=spi-bcm2837\n[pi4]\ndtoverlay=spi-bcm2711\n",
		"cmdline.txt": "console=tty1 quiet\nnot this\n",
		"initrd.img":  "initrd " + name, "kernel8.img": string(gzipped(kernel(name))), "five.img": string(kernel(name)),
		"start.elf": "", "fixup.dat": "", "start4.elf": "", "fixup4.dat": "",
		"overlays/spi-bcm2837.dtbo": "37", "overlays/spi-bcm2711.dtbo": "11",
	})
	for _, b := range Boards() {
		m[b.DTB] = &fstest.MapFile{Data: []byte(b.DTB)}
	}
	return m
}

func disk(first fstest.MapFS) Disk {
	a, b := slot("a"), slot("b")
	return func(n int) (fs.FS, error) {
		switch n {
		case 1:
			return first, nil
		case 2:
			return a, nil
		case 3:
			return b, nil
		}
		return nil, errors.New("no FAT")
	}
}

func TestChoice(t *testing.T) {
	first := files(map[string]string{"autoboot.txt": autoboot, "bootcode.bin": ""})
	for _, c := range []struct {
		name  string
		first fstest.MapFS
		start Start
		want  int
		file  string
	}{
		{"usual", first, Start{}, 2, "config.txt"},
		{"trial", first, Start{Tryboot: true}, 3, "config.txt"},
		// field case 59: the last boot_partition wins, so both slots must be alike.
		{"old bootloader", first, Start{OldBootloader: true}, 3, "config.txt"},
		// field case 66: no start.elf and no config.txt on partition 1, so the search
		// doesn't end there.
		{"autoboot.txt lost", files(map[string]string{"bootcode.bin": ""}), Start{}, 2, "config.txt"},
	} {
		b, err := Run(disk(c.first), Pi3B(), c.start)
		if err != nil || b.Partition != c.want || b.ConfigFile != c.file {
			t.Errorf("%s: partition %d by %s, %v", c.name, b.Partition, b.ConfigFile, err)
		}
	}
	// field case 60: without tryboot_a_b a trial reads tryboot.txt of the same slot.
	plain := files(map[string]string{"autoboot.txt": "boot_partition=2\n"})
	if _, err := Run(disk(plain), Pi3B(), Start{Tryboot: true}); err == nil || !strings.Contains(err.Error(), "tryboot.txt") {
		t.Errorf("a trial without tryboot.txt: %v", err)
	}
}

func TestEveryBoard(t *testing.T) {
	first := files(map[string]string{"autoboot.txt": autoboot})
	for _, board := range Boards() {
		b, err := Run(disk(first), board, Start{})
		if err != nil {
			t.Errorf("%s: %v", board.Name, err)
			continue
		}
		if string(b.DTB) != board.DTB || b.Cmdline != "console=tty1 quiet" || string(b.Initrd) != "initrd a" {
			t.Errorf("%s boots %+v", board.Name, b)
		}
		wantKernel, wantOverlay := "kernel8.img", ""
		switch board.Filters[len(board.Filters)-1] {
		case "pi5":
			wantKernel = "five.img"
		case "pi3":
			wantOverlay = "spi-bcm2837"
		case "pi4":
			wantOverlay = "spi-bcm2711"
		}
		if b.KernelFile != wantKernel || !bytes.Equal(b.Kernel, kernel("a")) {
			t.Errorf("%s takes %s", board.Name, b.KernelFile)
		}
		if wantOverlay != "" && names(b.Overlays) != wantOverlay {
			t.Errorf("%s takes the overlays %q", board.Name, names(b.Overlays))
		}
	}
	b, err := Run(disk(first), Virt(), Start{})
	if err != nil || b.DTB != nil || b.Overlays != nil {
		t.Errorf("virt boots %+v, %v", b, err)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, file, text, want string
	}{
		{"an unknown setting", "config.txt", "frobnicate=1\n", "frobnicate"},
		{"an unknown section", "config.txt", "[pi9]\n", "[pi9]"},
		{"an overlay with parameters", "extra.txt", "dtoverlay=spi,cs=1\n", "parameters"},
		{"an overlay that isn't there", "extra.txt", "dtoverlay=none\n", "none.dtbo"},
		{"a file that includes itself", "extra.txt", "include extra.txt\n", "include each other"},
		{"a kernel of another kind", "kernel8.img", "MZ", "no kernel for arm64"},
		{"a damaged kernel", "kernel8.img", "\x1f\x8b damaged", "kernel8.img"},
		{"no initrd", "config.txt", "initramfs none.img followkernel\n", "none.img"},
	} {
		m := maps.Clone(slot("a"))
		m[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		d := func(n int) (fs.FS, error) {
			if n == 1 {
				return files(map[string]string{"autoboot.txt": autoboot}), nil
			}
			return m, nil
		}
		if _, err := Run(d, Pi3B(), Start{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, text := range []string{"boot_partition=two\n", "[pi3]\n", "kernel=1\n", strings.Repeat("# long\n", 100)} {
		if _, err := Run(disk(files(map[string]string{"autoboot.txt": text})), Pi3B(), Start{}); err == nil {
			t.Errorf("an autoboot.txt %.20q is taken", text)
		}
	}
	without := func(n int) (fs.FS, error) { return fstest.MapFS{}, nil }
	if _, err := Run(without, Pi3B(), Start{}); err == nil {
		t.Error("an empty card boots")
	}
}

func TestDeviceTree(t *testing.T) {
	_, err := exec.LookPath("fdtput")
	testenv.Need(t, "device-tree-compiler", err == nil, "fdtput is not installed")
	compile := func(source string) []byte {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.CommandContext(t.Context(), "dtc", "-q", "-@", "-I", "dts", "-O", "dtb", "-o", out, "-")
		cmd.Stdin = strings.NewReader(source)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tree := compile(`/dts-v1/; / { model = "old"; chosen {}; spi: spi@1 { status = "disabled"; }; };`)
	overlay := compile(`/dts-v1/; /plugin/; &spi { status = "okay"; };`)
	tree, err = DeviceTree(t.Context(), tree, []Overlay{{"spi", overlay}}, Facts{Serial: "10000000abcdef01", Model: "new", Partition: 3, Tryboot: true, BuildTimestamp: 1700000000})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tree")
	if err := os.WriteFile(file, tree, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"/spi@1", "status", "okay"}, {"/", "serial-number", "10000000abcdef01"}, {"/", "model", "new"},
		{"/chosen/bootloader", "partition", "3"}, {"/chosen/bootloader", "tryboot", "1"}, {"/chosen/bootloader", "build-timestamp", "1700000000"},
	} {
		out, err := exec.CommandContext(t.Context(), "fdtget", file, c[0], c[1]).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != c[2] {
			t.Errorf("%s %s is %s, %v", c[0], c[1], out, err)
		}
	}
	if binary.BigEndian.Uint32(tree) != 0xd00dfeed {
		t.Error("what comes out is no device tree")
	}
	if _, err := DeviceTree(t.Context(), []byte("nothing"), nil, Facts{}); err == nil {
		t.Error("nothing is a device tree")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(autoboot), []byte("[pi3]\nkernel=kernel8.img\ninclude a\n"))
	f.Fuzz(func(t *testing.T, auto, conf []byte) {
		m := maps.Clone(slot("a"))
		m["config.txt"] = &fstest.MapFile{Data: conf}
		d := func(n int) (fs.FS, error) {
			if n == 1 {
				return fstest.MapFS{"autoboot.txt": &fstest.MapFile{Data: auto}}, nil
			}
			return m, nil
		}
		_, _ = Run(d, Pi3B(), Start{Tryboot: true})
	})
}
