package firmware

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"farhand/provision/grubenv"
)

// UEFI is what differs between machines with UEFI.
type UEFI struct {
	// Suffix is the specification's for the architecture, as in BOOTX64.EFI
	// (UEFI 2.10, table 3-1), in lower case.
	Suffix string
	// Cmdline are further arguments of the kernel; may be empty.
	Cmdline string
}

// Stage writes Out/boot and Out/autoboot, the content of both boot partitions and
// of the first one, as the other Stage does. Boot has shim.efi and grub.efi,
// Debian's, whose signatures Secure Boot accepts; so does the kernel's.
//
// The firmware starts EFI/BOOT/BOOT*.EFI, a name that it looks for on every disk;
// that is shim, which starts grub*.efi beside it, and GRUB as it was built reads
// its configuration from EFI/debian.
func (u UEFI) Stage(_ context.Context, o Options) error {
	boot, first := filepath.Join(o.Out, "boot"), filepath.Join(o.Out, "autoboot")
	for _, dir := range []string{boot, filepath.Join(first, "EFI/BOOT"), filepath.Join(first, "EFI/debian")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	cmdline := bytes.TrimSpace(text("boot/cmdline.txt"))
	if u.Cmdline != "" {
		cmdline = fmt.Appendf(cmdline, " %s", u.Cmdline)
	}
	for name, content := range map[string][]byte{
		filepath.Join(boot, "boot.cfg"):             bytes.Replace(text("uefi/boot.cfg"), []byte("CMDLINE"), cmdline, 1),
		filepath.Join(first, "EFI/debian/grub.cfg"): text("esp/grub.cfg"),
		filepath.Join(first, grubenv.File):          grubenv.Choice{Slot: "a"}.Marshal(),
		filepath.Join(first, "README.TXT"):          readme("esp", o.Version),
		filepath.Join(first, "farhand.toml"):        text("farhand.toml"),
	} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		filepath.Join(o.Boot, "vmlinuz"):  filepath.Join(boot, "vmlinuz"),
		o.Initrd:                          filepath.Join(boot, "initrd.img"),
		filepath.Join(o.Boot, "shim.efi"): filepath.Join(first, "EFI/BOOT/BOOT"+strings.ToUpper(u.Suffix)+".EFI"),
		filepath.Join(o.Boot, "grub.efi"): filepath.Join(first, "EFI/BOOT/grub"+u.Suffix+".efi"),
	} {
		if err := copyFile(from, to); err != nil {
			return err
		}
	}
	return settle(o.Out, o.Epoch)
}
