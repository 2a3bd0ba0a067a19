package firmware

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	emulated "farhand/e2e/boot/firmware"
	"farhand/internal/testenv"
	"farhand/provision/hardware"
	"farhand/provision/preseed"
)

var epoch = time.Unix(1_800_000_000, 0)

// treesVar names a folder with the kernel's own trees (dtb/broadcom of its
// packages), which the tests then take instead of testdata's.
const treesVar = "FARHAND_TREES"

func needCompiler(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"dtc", "fdtoverlay", "fdtget", "fdtput"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, "dtc", err == nil, tool+" of device-tree-compiler isn't installed")
	}
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// parts is what the packages give: the trees have the nodes of the kernel's.
func parts(t *testing.T) Options {
	t.Helper()
	needCompiler(t)
	dir := t.TempDir()
	kernel := make([]byte, 128)
	copy(kernel[56:], "ARM\x64") // the header of an arm64 Image
	write(t, dir+"/vmlinuz", kernel)
	write(t, dir+"/initrd", []byte("initrd"))
	for _, name := range []string{"bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat", "start4x.elf", "fixup4x.dat"} {
		write(t, dir+"/raspi-firmware/"+name, []byte(name))
	}
	for _, b := range boards() {
		tree := filepath.Join(dir, "dtb/broadcom", b.tree)
		if given := os.Getenv(treesVar); given != "" {
			text, err := os.ReadFile(filepath.Join(given, b.tree))
			if err != nil {
				t.Fatal(err)
			}
			write(t, tree, text)
			continue
		}
		write(t, tree, nil)
		if err := run(t.Context(), nil, "dtc", "-q", "-@", "-I", "dts", "-O", "dtb", "-o", tree, "testdata/"+b.soc+".dts"); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Boot: dir, Initrd: dir + "/initrd", Out: t.TempDir(), Version: "1.2.3", Epoch: epoch}
}

func staged(t *testing.T) string {
	t.Helper()
	o := parts(t)
	if err := Stage(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

// Field cases 68 and 75: each board finds all that it needs on the partition,
// and kernel, initrd and device tree from the same one.
func TestEveryBoardBoots(t *testing.T) {
	out := staged(t)
	disk := func(n int) (fs.FS, error) {
		switch n {
		case 1:
			return os.DirFS(out + "/autoboot"), nil
		case 2, 3: // bit-identical
			return os.DirFS(out + "/boot"), nil
		}
		return nil, fs.ErrNotExist
	}
	for _, board := range emulated.Boards() {
		for start, want := range map[emulated.Start]int{{}: 2, {Tryboot: true}: 3, {OldBootloader: true}: 3} {
			b, err := emulated.Run(disk, board, start)
			if err != nil {
				t.Errorf("%s: %v", board.Name, err)
				continue
			}
			if b.Partition != want || b.ConfigFile != "config.txt" || string(b.Initrd) != "initrd" {
				t.Errorf("%s, %+v: boots partition %d by %s", board.Name, start, b.Partition, b.ConfigFile)
			}
			if strings.Contains(b.Cmdline, "console=") || !strings.Contains(b.Cmdline, "panic=") {
				t.Errorf("%s: command line %q", board.Name, b.Cmdline)
			}
			if _, err := emulated.DeviceTree(t.Context(), b.DTB, b.Overlays, emulated.Facts{Partition: want}); err != nil {
				t.Errorf("%s: %v", board.Name, err)
			}
		}
	}
}

// Field case 66: with autoboot.txt lost, or the first partition empty, the
// search goes on to a boot partition.
func TestFirstPartitionIsNoneToBootFrom(t *testing.T) {
	out := staged(t)
	for _, pattern := range []string{"start*.elf", "config.txt", "fixup*", "kernel*"} {
		if found, _ := filepath.Glob(filepath.Join(out, "autoboot", pattern)); found != nil {
			t.Errorf("partition 1 has %v", found)
		}
	}
	auto, err := os.ReadFile(out + "/autoboot/autoboot.txt")
	if err != nil || len(auto) > 512 {
		t.Errorf("autoboot.txt: %d bytes, %v", len(auto), err)
	}
	if _, err := os.Stat(out + "/autoboot/bootcode.bin"); err != nil {
		t.Error(err)
	}
}

// Field case 60: a bootloader that takes tryboot.txt in a trial reads the same.
func TestTrybootFileIsTheConfiguration(t *testing.T) {
	out := staged(t)
	config, err := os.ReadFile(out + "/boot/config.txt")
	if err != nil {
		t.Fatal(err)
	}
	trial, err := os.ReadFile(out + "/boot/tryboot.txt")
	if err != nil || !bytes.Equal(config, trial) || len(config) == 0 {
		t.Errorf("tryboot.txt differs: %v", err)
	}
	for line := range strings.Lines(string(config)) {
		if len(line) > 98 { // Raspberry Pi documentation, config.txt: what is read of a line
			t.Errorf("%d characters: %q", len(line), line)
		}
	}
}

// Field case 61: nothing that a bootloader would flash itself with.
func TestNoBootloaderUpdate(t *testing.T) {
	out := staged(t)
	err := filepath.WalkDir(out, func(name string, e fs.DirEntry, err error) error {
		if n := e.Name(); strings.HasPrefix(n, "pieeprom") || strings.HasPrefix(n, "recovery") || strings.HasPrefix(n, "vl805") {
			t.Errorf("%s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The example switches nothing, and each of its lines is right once its # is
// taken away.
func TestExample(t *testing.T) {
	out := staged(t)
	text, err := os.ReadFile(out + "/autoboot/farhand.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, report := preseed.Parse(preseed.Files{Farhand: text}); len(report) != 0 {
		t.Errorf("as it is: %v", report)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if bare, ok := strings.CutPrefix(line, "# "); ok && (strings.Contains(bare, " = ") || strings.HasPrefix(bare, "[")) && !strings.HasPrefix(bare, "ca_sha256") && !strings.HasPrefix(bare, "claim_key") {
			lines[i] = bare
		}
	}
	s, report := preseed.Parse(preseed.Files{Farhand: []byte(strings.Join(lines, "\n"))})
	for _, item := range report {
		if item.Outcome != preseed.Applied {
			t.Errorf("%s: %s %s", item.Item, item.Outcome, item.Why)
		}
	}
	if len(s.Farhand.Buses) != len(hardware.Buses()) || s.Farhand.Relay == "" {
		t.Errorf("read: %+v", s.Farhand)
	}
}

func TestSameBytesEachTime(t *testing.T) {
	o := parts(t)
	var sums [2]string
	for i := range sums {
		o.Out = t.TempDir()
		if err := Stage(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		sums[i] = listing(t, o.Out)
	}
	if sums[0] != sums[1] {
		t.Error("two stagings differ")
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		var text []byte
		if !e.IsDir() {
			if text, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		if !info.ModTime().Equal(epoch) {
			t.Errorf("%s is of %v", name, info.ModTime())
		}
		rel, err := filepath.Rel(dir, name)
		fmt.Fprintf(&all, "%s %v %q\n", rel, info.Mode(), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// A tree that an overlay doesn't fit stops the build.
func TestOverlayWithoutItsNode(t *testing.T) {
	o := parts(t)
	tree := filepath.Join(o.Boot, "dtb/broadcom/bcm2711-rpi-400.dtb")
	if err := run(t.Context(), []byte("/dts-v1/;\n/ { };\n"), "dtc", "-@", "-I", "dts", "-O", "dtb", "-o", tree, "-"); err != nil {
		t.Fatal(err)
	}
	if err := Stage(t.Context(), o); err == nil || !strings.Contains(err.Error(), "bcm2711-rpi-400.dtb") {
		t.Errorf("staged: %v", err)
	}
}

// What each overlay does to its board's tree.
func TestOverlays(t *testing.T) {
	out := staged(t)
	const i2c, spi0, spi1, pwm = "/soc/i2c@7e804000", "/soc/spi@7e204000", "/soc/spi@7e215080", "/soc/pwm@7e20c000"
	pi3, pi4, pi5 := "bcm2837-rpi-3-b.dtb", "bcm2711-rpi-4-b.dtb", "bcm2712-rpi-5-b.dtb"
	for _, c := range []struct{ tree, overlay, node, property, want string }{
		{pi3, "i2c1-bcm2837", i2c, "status", "okay"},
		{pi3, "no-i2c1-bcm2837", i2c, "status", "disabled"},
		{pi4, "i2c1-bcm2711", i2c, "clock-frequency", "100000"},
		{pi3, "spi0-bcm2837", spi0, "status", "okay"},
		{pi3, "spi0-bcm2837", spi0 + "/spidev@1", "reg", "1"},
		{pi4, "spi1-bcm2711", spi1 + "/spidev@2", "compatible", "rohm,dh2228fv"},
		{pi4, "spi1-bcm2711", "/soc/gpio@7e200000/farhand-spi1", "brcm,pins", "19 20 21"},
		{pi3, "pwm-bcm2837", pwm, "status", "okay"},
		{pi4, "pwm-bcm2711", pwm, "status", "okay"},
		{pi4, "uart2-bcm2711", "/soc/serial@7e201400", "status", "okay"},
		{pi4, "uart5-bcm2711", "/aliases", "serial5", "/soc/serial@7e201a00"},
		{pi4, "w1-bcm2711", "/farhand-w1", "compatible", "w1-gpio"},
		{pi5, "w1-bcm2712", "/farhand-w1", "compatible", "w1-gpio"},
	} {
		if got := property(t.Context(), t, out, c.tree, c.overlay, c.node, c.property); got != c.want {
			t.Errorf("%s on %s: %s of %s is %q, not %q", c.overlay, c.tree, c.property, c.node, got, c.want)
		}
	}
}

func property(ctx context.Context, t *testing.T, out, tree, overlay, node, name string) string {
	t.Helper()
	merged := filepath.Join(t.TempDir(), "merged.dtb")
	if err := run(ctx, nil, "fdtoverlay", "-i", filepath.Join(out, "boot", tree), "-o", merged, filepath.Join(out, "boot/overlays", overlay+".dtbo")); err != nil {
		t.Errorf("%s on %s: %v", overlay, tree, err)
		return ""
	}
	b, err := exec.CommandContext(ctx, "fdtget", merged, node, name).CombinedOutput()
	if err != nil {
		t.Errorf("%s on %s: %v: %s", overlay, tree, err, b)
	}
	return strings.TrimSpace(string(b))
}
