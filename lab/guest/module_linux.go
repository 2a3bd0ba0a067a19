package guest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/lab/proto"
)

// Module loads a kernel module that the lab's initramfs holds but doesn't load,
// with parameters ("chip_addr=0x50"), and unloads it after the test.
func Module(t testing.TB, name, params string) {
	t.Helper()
	f, err := os.Open(filepath.Join(proto.ModulesDir, name+".ko"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), params, 0); err != nil {
		t.Fatalf("module %s %s: %v", name, params, err)
	}
	t.Cleanup(func() {
		// What the test used it by may take a moment to be let go.
		WaitFor(t, "module "+name+" to be free", func() bool {
			err := unix.DeleteModule(name, unix.O_NONBLOCK)
			if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EBUSY) {
				t.Errorf("unloading %s: %v", name, err)
				return true
			}
			return err == nil
		})
	})
}
