package firmware

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/provision/grubenv"
	"farhand/provision/preseed"
)

func stagedUEFI(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"vmlinuz", "initrd", "shim.efi", "grub.efi"} {
		write(t, filepath.Join(dir, name), []byte(name))
	}
	o := Options{Boot: dir, Initrd: dir + "/initrd", Out: t.TempDir(), Version: "1.2.3", Epoch: epoch}
	if err := (UEFI{Suffix: "x64", Cmdline: "console=ttyS0"}).Stage(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

func TestUEFIStage(t *testing.T) {
	out := stagedUEFI(t)
	for name, want := range map[string]string{
		"autoboot/EFI/BOOT/BOOTX64.EFI": "shim.efi", "autoboot/EFI/BOOT/grubx64.efi": "grub.efi", "autoboot/EFI/debian/grub.cfg": `source "$from/boot.cfg"`,
		"autoboot/" + grubenv.File: "slot=a\n", "autoboot/README.TXT": "Farhand 1.2.3\n", "boot/vmlinuz": "vmlinuz", "boot/initrd.img": "initrd",
		"boot/boot.cfg": " console=ttyS0; then",
	} {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s doesn't hold %q: %q, %v", name, want, b, err)
		}
	}
	again := stagedUEFI(t)
	if listing(t, out) != listing(t, again) {
		t.Error("two stagings differ")
	}
	text, err := os.ReadFile(out + "/autoboot/farhand.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, report := preseed.Parse(preseed.Files{Farhand: text}); len(report) != 0 {
		t.Errorf("farhand.toml as it is: %v", report)
	}
	if strings.Contains(string(text), "buses") {
		t.Error("a PC has a header")
	}
}

func TestUEFIStageWithoutItsLoader(t *testing.T) {
	if err := (UEFI{Suffix: "x64"}).Stage(t.Context(), Options{Boot: t.TempDir(), Initrd: os.DevNull, Out: t.TempDir(), Epoch: epoch}); err == nil {
		t.Error("it is staged")
	}
}
