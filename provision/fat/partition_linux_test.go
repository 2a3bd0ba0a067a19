package fat

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
)

// device makes a block device with a file system on it.
func device(t *testing.T, kind string) string {
	t.Helper()
	testenv.Need(t, "mount", os.Geteuid() == 0 && exec.Command("losetup", "-f").Run() == nil, "it mounts a loop device, which takes root")
	known, err := os.ReadFile("/proc/filesystems")
	testenv.Need(t, kind, err == nil && strings.Contains(string(known), "\t"+kind+"\n"), "the kernel has no such file system")
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	maker := exec.Command("mkfs."+kind, image)
	if kind == "ext4" {
		maker = exec.Command("mkfs.ext4", "-q", "-F", image)
	}
	if out, err := maker.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("losetup", "-f", "--show", image).Output()
	if err != nil {
		t.Fatalf("losetup: %v", err)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "-d", loop).Run(); err != nil {
			t.Errorf("losetup -d: %v", err)
		}
	})
	return loop
}

func TestPartitionExt4(t *testing.T) { partition(t, "ext4") }
func TestPartitionVFAT(t *testing.T) { partition(t, "vfat") }

// Field case 71: the partition is mounted read-only to look, writable for a
// commit, and not at all in between.
func partition(t *testing.T, kind string) {
	p := &Partition{Device: device(t, kind), Type: kind}
	for _, content := range []string{"one", "two"} {
		if err := p.Commit(t.Context(), func(root *os.Root) error { return Replace(root, "PAIR.TXT", []byte(content)) }); err != nil {
			t.Fatal(err)
		}
		if err := p.View(t.Context(), func(root *os.Root) error {
			if b, err := Read(root, "PAIR.TXT", 10); err != nil || string(b) != content {
				t.Errorf("%q, %v", b, err)
			}
			if err := Replace(root, "x", nil); !errors.Is(err, unix.EROFS) {
				t.Errorf("written while looking: %v", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounts), p.Device+" ") {
			t.Errorf("still mounted: %v\n%s", err, mounts)
		}
	}
	if err := p.Commit(t.Context(), func(root *os.Root) error { return Shred(root, "PAIR.TXT") }); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionThatIsNone(t *testing.T) {
	testenv.Need(t, "mount", os.Geteuid() == 0, "mounting takes root")
	p := &Partition{Device: "/dev/null", Type: "ext4"}
	if err := p.View(t.Context(), func(*os.Root) error { t.Error("called"); return nil }); err == nil {
		t.Error("mounted")
	}
}
