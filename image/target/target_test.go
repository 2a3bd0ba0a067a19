package target

import (
	"strings"
	"testing"
)

// What is named twice could come to differ.
func TestTargets(t *testing.T) {
	names, suffixes := make(map[string]bool), make(map[string]bool)
	for _, x := range All() {
		if names[x.Name] || suffixes[x.Suffix] {
			t.Errorf("%s (%s) is there twice", x.Name, x.Suffix)
		}
		names[x.Name], suffixes[x.Suffix] = true, true
		if got, err := Find(x.Name); err != nil || got.Suffix != x.Suffix {
			t.Errorf("%s is found as %s, %v", x.Name, got.Name, err)
		}
		if x.Stage == nil || len(x.Root.Boot) == 0 || len(x.Initramfs) == 0 || x.FirstMiB*2 < x.FirstBits {
			t.Errorf("%s lacks something: %+v", x.Name, x)
		}
	}
	if _, err := Find("pdp11"); err == nil || !strings.Contains(err.Error(), "amd64") {
		t.Errorf("another machine: %v", err)
	}
}

func TestFirmware(t *testing.T) {
	for name, want := range map[string]bool{
		"brcm/brcmfmac43455-sdio.bin": true, "brcm/brcmfmac43455-sdio.raspberrypi,4-model-b.txt": true, "cypress/cyfmac43455-sdio-standard.bin": true,
		"brcm/brcmfmac43455-sdio.acepc-t8.txt": false, "brcm/brcmfmac4366b-pcie.bin": false,
	} {
		if piRadio(name) != want {
			t.Errorf("%s: kept %t", name, !want)
		}
	}
	if !realtek("rtl_nic/rtl8168h-2.fw") || realtek("rtl_bt/rtl8723a_fw.bin") || realtek("iwlwifi-7265D-29.ucode") {
		t.Error("a PC keeps other firmware than Realtek's network chips'")
	}
}
