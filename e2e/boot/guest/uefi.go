package guest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"farhand/e2e/boot/emulator"
)

// uefi says whether a machine has firmware that QEMU runs: then nothing of what
// it does with the card is emulated by us.
func (k Kind) uefi() bool { return k == Generic || k == PC }

// UEFI is the firmware of such a kind, as its package has it. A PC's starts only
// what is signed: its variables hold Microsoft's keys, by which shim is.
func (k Kind) UEFI() (f emulator.Firmware, ok bool) {
	switch k {
	case Generic:
		return emulator.Firmware{Package: "qemu-efi-aarch64", Code: "usr/share/AAVMF/AAVMF_CODE.no-secboot.fd", Vars: "usr/share/AAVMF/AAVMF_VARS.fd"}, true
	case PC:
		return emulator.Firmware{Package: "ovmf", Code: "usr/share/OVMF/OVMF_CODE_4M.secboot.fd", Vars: "usr/share/OVMF/OVMF_VARS_4M.ms.fd"}, true
	}
	return f, false
}

// flash are the chips with the firmware, and with its variables, which stay as
// the machine left them.
func (b *Board) flash() ([]string, error) {
	vars := filepath.Join(b.Dir, "vars.fd")
	if _, err := os.Stat(vars); errors.Is(err, fs.ErrNotExist) {
		fresh, err := os.ReadFile(b.Firmware.Vars)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(vars, fresh, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + b.Firmware.Code,
		"-drive", "if=pflash,unit=1,format=raw,file=" + vars,
	}, nil
}
