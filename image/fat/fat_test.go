package fat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"farhand/internal/testenv"
)

var when = time.Date(2026, 9, 1, 12, 30, 44, 0, time.UTC)

// mkfs makes an empty file system by dosfstools.
func mkfs(t testing.TB, bits int, size int64) string {
	t.Helper()
	_, err := exec.LookPath("mkfs.vfat")
	testenv.Need(t, "mkfs.vfat", err == nil, "dosfstools makes what is read")
	path := filepath.Join(t.TempDir(), "fat")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mkfs.vfat", "-F", strconv.Itoa(bits), "-n", "FARHAND", "-i", "fa44a17d", "--invariant", "-C", path, strconv.FormatInt(size/1024, 10))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mkfs.vfat: %v: %s", err, out)
	}
	return path
}

func open(t testing.TB, path string) (*Volume, *os.File) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return v, f
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	_, err := exec.LookPath(name)
	testenv.Need(t, name, err == nil, "a second opinion on the file system")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "MTOOLS_SKIP_CHECK=1", "TZ=UTC", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func kinds(t *testing.T, f func(t *testing.T, bits int, size int64)) {
	t.Run("FAT16", func(t *testing.T) { f(t, 16, 32<<20) })
	t.Run("FAT32", func(t *testing.T) { f(t, 32, 96<<20) })
}

// What is written is sound to dosfstools and the same to mtools.
func TestOthersRead(t *testing.T) {
	kinds(t, func(t *testing.T, bits int, size int64) {
		path := mkfs(t, bits, size)
		v, f := open(t, path)
		want := make(map[string][]byte)
		random := rand.New(rand.NewPCG(1, uint64(bits)))
		put := func(name string, n int) {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			if err := v.WriteFile(name, b, when); err != nil {
				t.Fatal(err)
			}
			want[name] = b
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(v.Mkdir("overlays", when))
		must(v.Mkdir("overlays/deeper one", when))
		put("BOOTCODE.BIN", 52_000)
		put("autoboot.txt", 60)
		put("empty", 0)
		put("bcm2711-rpi-4-b.dtb", 50_000)
		put("bcm2711-rpi-400.dtb", 50_001)
		put("Grüße an alle, die dies hier lesen.txt", 7)
		for i := range 200 { // the directory grows over several clusters
			put(fmt.Sprintf("overlays/an-overlay-with-a-long-name-%d.dtbo", i), i)
		}
		put("overlays/deeper one/file", 12345)
		// Replaced by something longer, shorter, nothing; removed and made anew.
		put("bcm2711-rpi-4-b.dtb", 150_000)
		put("autoboot.txt", 10)
		put("overlays/an-overlay-with-a-long-name-150.dtbo", 0)
		must(v.Remove("bcm2711-rpi-400.dtb"))
		delete(want, "bcm2711-rpi-400.dtb")
		put("bcm2711-rpi-400.dtb", 3)
		must(v.Flush())
		must(f.Sync())

		again, _ := open(t, path)
		if again.Label() != "FARHAND" {
			t.Errorf("label %q", again.Label())
		}
		if again.Free() != v.Free() {
			t.Errorf("%d bytes free, thought %d", again.Free(), v.Free())
		}
		for name, content := range want {
			got, err := again.ReadFile(strings.ToUpper(name))
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(content), err)
			}
		}
		if e, err := again.Stat("autoboot.txt"); err != nil || !e.ModTime.Equal(when) || e.Short != "AUTOBOOT.TXT" || e.Name != "autoboot.txt" {
			t.Errorf("autoboot.txt: %+v, %v", e, err)
		}
		tool(t, "fsck.vfat", "-n", path)
		out := t.TempDir()
		tool(t, "mcopy", "-i", path, "-s", "-m", "::", out)
		for name, content := range want {
			got, err := os.ReadFile(filepath.Join(out, name))
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("mtools reads %s: %d bytes, want %d, %v", name, len(got), len(content), err)
			}
		}
	})
}

// What others wrote is read.
func TestReadsOthers(t *testing.T) {
	kinds(t, func(t *testing.T, bits int, size int64) {
		path := mkfs(t, bits, size)
		long := "bcm2837-rpi-zero-2-w.dtb"
		from := filepath.Join(t.TempDir(), long)
		content := bytes.Repeat([]byte("dtb "), 30_000)
		if err := os.WriteFile(from, content, 0o600); err != nil {
			t.Fatal(err)
		}
		tool(t, "mmd", "-i", path, "::overlays")
		tool(t, "mcopy", "-i", path, from, "::overlays/")
		tool(t, "mcopy", "-i", path, from, "::config.txt")
		v, _ := open(t, path)
		for _, name := range []string{"overlays/" + long, "config.txt", "Overlays/BCM2837-rpi-zero-2-w.DTB"} {
			if got, err := v.ReadFile(name); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
		all, err := v.ReadDir(".")
		if err != nil || len(all) != 2 || all[1].Name != "config.txt" {
			t.Errorf("root: %+v, %v", all, err)
		}
		used := int64(0)
		for _, x := range v.Used() {
			used += x.Length
		}
		if most := int64(2*len(content)) + 4<<20; used < int64(2*len(content)) || used > most {
			t.Errorf("%d bytes are in use", used)
		}
	})
}

func TestFull(t *testing.T) {
	kinds(t, func(t *testing.T, bits int, size int64) {
		path := mkfs(t, bits, size)
		v, _ := open(t, path)
		free := v.Free()
		if err := v.WriteFile("large", make([]byte, free+1), when); !errors.Is(err, ErrFull) {
			t.Errorf("a file larger than what is free: %v", err)
		}
		if v.Free() != free {
			t.Errorf("a failure took %d bytes", free-v.Free())
		}
		if err := v.WriteFile("exact", make([]byte, free), when); err != nil {
			t.Errorf("a file as large as what is free: %v", err)
		}
		if err := v.Flush(); err != nil {
			t.Fatal(err)
		}
		tool(t, "fsck.vfat", "-n", path)
	})
}

func TestFullRoot(t *testing.T) {
	v, _ := open(t, mkfs(t, 16, 32<<20))
	for i := range 600 {
		err := v.WriteFile(fmt.Sprintf("FILE%d", i), nil, when)
		if errors.Is(err, ErrFull) {
			if i < 500 {
				t.Errorf("full after %d files", i)
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a root directory of 512 records took 600 files")
}

func TestRefused(t *testing.T) {
	v, _ := open(t, mkfs(t, 16, 32<<20))
	for _, name := range []string{"", ".", "..", "a:b", "a\nb", "dot.", strings.Repeat("x", 256), "nul\x00"} {
		if err := v.WriteFile("./"+name, nil, when); err == nil {
			t.Errorf("%q is written", name)
		}
	}
	if _, err := v.ReadFile("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
	if err := v.WriteFile("no/dir", nil, when); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that isn't there: %v", err)
	}
	if err := v.Remove("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing a file that isn't there: %v", err)
	}
	for name, b := range map[string][]byte{"zeros": make([]byte, 1<<20), "short": make([]byte, 100), "noise": bytes.Repeat([]byte{0x55, 0xaa}, 1<<20)} {
		if _, err := Open(memory(b), int64(len(b))); err == nil {
			t.Errorf("%s is a file system", name)
		}
	}
}

// memory is a small storage.
type memory []byte

func (m memory) ReadAt(b []byte, off int64) (int, error) { return bytes.NewReader(m).ReadAt(b, off) }

func (m memory) WriteAt(b []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(b)) > int64(len(m)) {
		return 0, fmt.Errorf("%d bytes at %d are outside", len(b), off)
	}
	return copy(m[off:], b), nil
}

// FuzzOpen changes a sound file system in a few places and uses it.
func FuzzOpen(f *testing.F) {
	sound := small(f)
	f.Add([]byte{}, []byte{})
	f.Add([]byte{13, 0, 1}, []byte{22, 0, 200})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m := bytes.Clone(sound)
		for _, edit := range [][]byte{a, b} { // offset in two bytes, then what stands there
			if len(edit) > 2 {
				copy(m[int(edit[0])|int(edit[1])<<8:], edit[2:])
			}
		}
		v, err := Open(memory(m), int64(len(m)))
		if err != nil {
			return
		}
		if all, err := v.ReadDir("."); err == nil {
			for _, e := range all {
				v.ReadFile(e.Name)
				v.ReadDir(e.Name)
			}
		}
		v.WriteFile("one", []byte("content"), when)
		v.WriteFile("a longer name.text", make([]byte, 5000), when)
		v.Remove("one")
		v.Used()
		v.Flush()
	})
}

// small is a FAT16 of 3 MiB with a file and a directory.
func small(t testing.TB) []byte {
	m := make(memory, 3<<20)
	copy(m, []byte{0xeb, 0x3c, 0x90})
	copy(m[11:], []byte{0, 2, 1, 1, 0, 2, 0, 2, 0, 0x18, 0xf8, 24, 0}) // 512, 1 sector a cluster, 1 reserved, 2 tables, 512 records, 6144 sectors, 24 a table
	m[510], m[511] = 0x55, 0xaa
	copy(m[512:], []byte{0xf8, 0xff, 0xff, 0xff})
	v, err := Open(m, int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{v.WriteFile("a file.txt", make([]byte, 3000), when), v.Mkdir("dir", when), v.WriteFile("dir/x", []byte("x"), when), v.Flush()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}
