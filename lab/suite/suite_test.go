package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, src := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func names(suites []Suite) string {
	var n []string
	for _, s := range suites {
		n = append(n, s.Name)
	}
	return strings.Join(n, " ")
}

func TestFindAndSelect(t *testing.T) {
	all, err := Find(tree(t, map[string]string{
		"gpio/chip_lab_linux_test.go": "package gpio\n\nfunc TestLabChip(t *testing.T) {}\n",
		"gpio/more_lab_test.go":       "package gpio\nfunc TestLabMore(t *testing.T) {}\n",
		"usb/usbfs/lab_linux_test.go": "package usbfs\nfunc TestLabURB(t *testing.T) {}\n",
		"bus/lab_test.go":             "package bus\n// func TestLab is in a comment only\n",
		"bus/lab.go":                  "package bus\nfunc TestLabNot() {}\n",
		"shell/label_test.go":         "package shell\nfunc TestLabel(t *testing.T) {}\n",
		".hidden/lab_test.go":         "package h\nfunc TestLabX(t *testing.T) {}\n",
		"gpio/testdata/lab_test.go":   "package h\nfunc TestLabX(t *testing.T) {}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(all); got != "gpio usb/usbfs" {
		t.Errorf("found %s", got)
	}
	for list, want := range map[string]string{"usb": "usb/usbfs", "gpio, usb/usbfs": "gpio usb/usbfs", "gpio,gpio": "gpio"} {
		if got, err := Select(all, list); err != nil || names(got) != want {
			t.Errorf("%q selects %s (%v), want %s", list, names(got), err, want)
		}
	}
	if got, err := Select(all, "gpi"); err == nil {
		t.Errorf("half a name selects %s", names(got))
	}
	if _, err := Select(all, ""); err == nil || !strings.Contains(err.Error(), Required[0]) {
		t.Errorf("a required suite is missing, and that answers %v", err)
	}
}

// TestRequired says that this tree has what a run of the whole lab needs.
func TestRequired(t *testing.T) {
	all, err := Find("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Select(all, ""); err != nil {
		t.Error(err)
	}
}
