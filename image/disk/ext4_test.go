package disk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"farhand/internal/testenv"
)

// The same tree gives the same bytes, whenever its files were made.
func TestMakeExt4(t *testing.T) {
	for _, tool := range []string{"mke2fs", "debugfs", "e2fsck"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, "e2fsprogs", err == nil, "no "+tool)
	}
	epoch := time.Unix(1_790_000_000, 0)
	tree := t.TempDir()
	var made [2][]byte
	for i := range made {
		if err := os.RemoveAll(filepath.Join(tree, "a dir")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(tree, "a dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, "a dir/file"), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "data")
		if err := MakeExt4(t.Context(), Ext4{Label: "data", UUID: "fa44a17d-0000-4000-8000-0000000000da", Size: 8 << 20, Tree: tree, Epoch: epoch}, path); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "e2fsck", "-fn", path).CombinedOutput(); err != nil {
			t.Errorf("it is damaged: %v: %s", err, out)
		}
		for _, name := range []string{"/a dir/file", "/a dir", "/."} {
			out, err := exec.CommandContext(t.Context(), "debugfs", "-R", `stat "`+name+`"`, path).CombinedOutput()
			if err != nil || bytes.Count(out, []byte("time: 0x6ab13b80:")) != 4 {
				t.Errorf("a time of %s isn't the epoch's: %v: %s", name, err, out)
			}
		}
		var err error
		if made[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("two builds differ")
	}
}
