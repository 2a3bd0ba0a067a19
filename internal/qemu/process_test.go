package qemu

import (
	"os"
	"strings"
	"testing"
)

// A program that is no emulator says why, and at once.
func TestStartOfAnotherProgram(t *testing.T) {
	_, err := Start(t.Context(), Options{Program: "/bin/false", Dir: t.TempDir(), Sockets: []string{"console"}})
	if err == nil || !strings.Contains(err.Error(), "qmp") {
		t.Errorf("starting /bin/false: %v", err)
	}
}

func TestFind(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Find("aarch64"); err == nil || !strings.Contains(err.Error(), "qemu-system-arm") {
		t.Errorf("without QEMU: %v", err)
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := os.WriteFile(dir+"/qemu-system-aarch64", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err := Find("aarch64"); err != nil || p != dir+"/qemu-system-aarch64" {
		t.Errorf("it is found as %q, %v", p, err)
	}
}
