package elfarch

import (
	"os"
	"runtime"
	"testing"
)

func TestOf(t *testing.T) {
	if runtime.GOOS == "linux" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, HeaderLen)
		if _, err := f.Read(b); err != nil {
			t.Fatal(err)
		}
		if got := Of(b); got != runtime.GOARCH {
			t.Errorf("this test is for %q", got)
		}
	}
	arm := "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
	for header, want := range map[string]string{
		arm:                            "arm64",
		arm[:19]:                       "",
		"\x7fELF\x01" + arm[5:]:        "", // 32 bits
		arm[:18] + "\xf3\x00":          "", // RISC-V
		"#!/bin/sh\nexec something\n":  "",
		"":                             "",
		"\x7fELF\x02\x02" + arm[6:]:    "", // the other byte order
		arm[:18] + "\x3e\x00 and more": "amd64",
	} {
		if got := Of([]byte(header)); got != want {
			t.Errorf("%q is for %q, want %q", header, got, want)
		}
	}
}
