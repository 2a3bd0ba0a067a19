package writelog

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"farhand/internal/testenv"
)

// entry is one as QEMU writes it.
func entry(sector, count, flags uint64, data []byte) []byte {
	b := make([]byte, 512)
	binary.LittleEndian.PutUint64(b, sector)
	binary.LittleEndian.PutUint64(b[8:], count)
	binary.LittleEndian.PutUint64(b[16:], flags)
	return append(b, data...)
}

func fill(b byte, sectors int) []byte { return bytes.Repeat([]byte{b}, 512*sectors) }

func logOf(entries ...[]byte) []byte {
	b := make([]byte, 512)
	binary.LittleEndian.PutUint64(b, magic)
	binary.LittleEndian.PutUint64(b[8:], version)
	binary.LittleEndian.PutUint64(b[16:], 1) // older than the log, as after a kill
	binary.LittleEndian.PutUint32(b[24:], 512)
	return append(b, bytes.Join(entries, nil)...)
}

func read(t *testing.T, b []byte) *Log {
	t.Helper()
	l, err := Read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// memory is a disk.
type memory []byte

func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }
func (m memory) Zero(at, n int64) error                  { clear(m[at : at+n]); return nil }

func (m memory) sectors() string {
	var s []byte
	for i := 0; i < len(m); i += 512 {
		c := m[i]
		if c == 0 {
			c = '.'
		}
		s = append(s, c)
	}
	return string(s)
}

func replay(t *testing.T, l *Log, writes []Write) string {
	t.Helper()
	disk := make(memory, 8*512)
	if err := l.Apply(disk, writes, 0, int64(len(disk))); err != nil {
		t.Fatal(err)
	}
	return disk.sectors()
}

func TestAll(t *testing.T) {
	l := read(t, logOf(
		entry(1, 2, 0, fill('a', 2)),
		entry(0, 0, flagFlush, nil),
		entry(2, 1, 0, fill('b', 1)),
		entry(4, 4, flagDiscard, nil),
		entry(7, 1, flagFUA, fill('c', 1)),
		entry(1, 1, 0, fill(0, 1)),
	))
	if got := replay(t, l, l.All()); got != "..b....c" {
		t.Errorf("the disk is %q", got)
	}
	if l.Len() != 6 || l.Flushes(6) != 1 || l.Flushes(1) != 0 {
		t.Errorf("%d events, %d flushes", l.Len(), l.Flushes(l.Len()))
	}
	disk := make(memory, 2*512)
	if err := l.Apply(disk, l.All(), 2*512, 4*512); err != nil || disk.sectors() != "b." {
		t.Errorf("a part of the disk is %q, %v", disk.sectors(), err)
	}
}

// What was flushed is always there, in order; what was not, in every mixture.
func TestCut(t *testing.T) {
	l := read(t, logOf(
		entry(0, 1, 0, fill('a', 1)),
		entry(0, 1, 0, fill('b', 1)),
		entry(0, 0, flagFlush, nil),
		entry(1, 1, 0, fill('c', 1)),
		entry(2, 3, 0, fill('d', 3)),
		entry(5, 1, flagFUA, fill('e', 1)),
		entry(6, 1, 0, fill('f', 1)),
	))
	seen := make(map[string]bool)
	for seed := range uint64(400) {
		got := replay(t, l, l.Cut(6, rand.New(rand.NewPCG(seed, 0))))
		if got[0] != 'b' || got[5] != 'e' || got[6] != '.' {
			t.Fatalf("seed %d: the disk is %q", seed, got)
		}
		seen[got[1:5]] = true
	}
	for _, want := range []string{"....", "c...", "cd..", "cdd.", "cddd", ".ddd", ".d..", ".dd."} {
		if !seen[want] {
			t.Errorf("%q never came", want)
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d mixtures: %v", len(seen), seen)
	}
	if got := replay(t, l, l.Cut(2, rand.New(rand.NewPCG(1, 2)))); got[3:] != "....." {
		t.Errorf("what came later is there: %q", got)
	}
}

// Without a flush nothing is sure, but for a disk that has no cache.
func TestCutWithoutFlush(t *testing.T) {
	l := read(t, logOf(entry(0, 1, 0, fill('a', 1)), entry(1, 1, 0, fill('b', 1)), entry(2, 1, 0, fill('c', 1))))
	cached, uncached := make(map[string]bool), make(map[string]bool)
	for seed := range uint64(200) {
		cached[replay(t, l, l.Cut(2, rand.New(rand.NewPCG(seed, 0))))[:3]] = true
		uncached[replay(t, l, l.CutUncached(2, rand.New(rand.NewPCG(seed, 0))))[:3]] = true
	}
	if len(cached) != 4 || len(uncached) != 2 || !uncached["ab."] || !uncached["abc"] {
		t.Errorf("with a cache %v, without %v", cached, uncached)
	}
	for seed := range uint64(20) { // nothing is under way at the end
		if got := replay(t, l, l.CutUncached(l.Len(), rand.New(rand.NewPCG(seed, 0))))[:3]; got != "abc" {
			t.Errorf("of writes that were all answered there are %q", got)
		}
	}
}

func TestReadTruncated(t *testing.T) {
	whole := logOf(entry(0, 1, 0, fill('a', 1)), entry(1, 2, 0, fill('b', 2)))
	for _, cut := range []int{len(whole) - 1, len(whole) - 1024, len(whole) - 1030} {
		if l := read(t, whole[:cut]); l.Len() != 1 {
			t.Errorf("of a log cut at %d there are %d entries", cut, l.Len())
		}
	}
	if l := read(t, append(whole, make([]byte, 4096)...)); l.Len() != 2 {
		t.Errorf("a log with an unwritten end has %d entries", l.Len())
	}
	if l := read(t, nil); l.Len() != 0 || l.All() != nil {
		t.Errorf("an empty log has %d events", l.Len())
	}
	for name, b := range map[string][]byte{
		"short": make([]byte, 20), "foreign": make([]byte, 1024),
		"mark": logOf(entry(0, 0, flagMark, nil)), "huge": logOf(entry(1<<60, 1, 0, nil)),
	} {
		if _, err := Read(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// QEMU's own log, of writes that qemu-io makes.
func TestOfQEMU(t *testing.T) {
	io, err := exec.LookPath("qemu-io")
	testenv.Need(t, "qemu-utils", err == nil, "qemu-io is not installed")
	dir := t.TempDir()
	disk, log := filepath.Join(dir, "disk"), filepath.Join(dir, "log")
	for _, f := range []string{disk, log} {
		if err := os.WriteFile(f, make([]byte, 1<<16), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), io, "--image-opts", "driver=blklogwrites,file.driver=file,file.filename="+disk+",log.driver=file,log.filename="+log,
		"-c", "write -P 0x61 0 4096", "-c", "flush", "-c", "write -P 0x62 4096 1024", "-c", "write -z 1024 512", "-c", "discard 2048 512").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Read(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.Create(filepath.Join(dir, "again"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(File{again}, l.All(), 0, 1<<16); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6144)
	if _, err := again.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if s := memory(got).sectors(); s != "aa.aaaaabb.." {
		t.Errorf("the disk is %q", s)
	}
	if l.Flushes(l.Len()) == 0 {
		t.Error("the flush is not in the log")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(logOf(entry(0, 1, 0, fill('a', 1)), entry(0, 0, flagFlush, nil), entry(1, 2, flagDiscard, nil)))
	f.Add([]byte("nothing"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		disk := make(memory, 4096)
		if err := l.Apply(disk, l.Cut(l.Len(), rand.New(rand.NewPCG(1, 1))), 0, int64(len(disk))); err != nil {
			t.Error(err)
		}
	})
}
