package xz

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/internal/testenv"
)

func need(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("xz")
	testenv.Need(t, "xz", err == nil, "the xz program compresses what is new")
}

// decode is what the xz program makes of it with a limit on memory.
func decode(t *testing.T, packed []byte, limit string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--memlimit-decompress="+limit)
	cmd.Stdin = bytes.NewReader(packed)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("xz: %v: %s", err, complaint.String())
	}
	return out
}

// texts are n bytes that can be compressed, and whose every byte has high bits.
func texts(random *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "\xfe%d\xff\xfd", random.IntN(5000))
	}
	return b.Bytes()[:n]
}

func noise(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	need(t)
	random := rand.New(rand.NewPCG(7, 7))
	const k = 1 << 10
	image := make([]byte, 12<<20+4*k)
	var content []Extent
	put := func(at int, b []byte) {
		copy(image[at:], b)
		content = append(content, Extent{int64(at), int64(len(b))})
	}
	put(0, texts(random, 4*k))
	put(1<<20, texts(random, 700*k)) // several segments without a seam
	put(2<<20, noise(random, 300*k)) // stored, with seams
	put(3<<20, append(texts(random, 200*k), noise(random, 200*k)...))
	copies := []Copy{{Extent{6 << 20, 5 << 20}, 1 << 20}}
	copy(image[6<<20:11<<20], image[1<<20:])
	put(11<<20, noise(random, 4*k))
	o := Options{Size: int64(len(image)), Content: content, Copies: copies, Level: 2, Workers: 3, Segment: 128 * k}
	var packed, again bytes.Buffer
	r, err := Encode(t.Context(), &packed, bytes.NewReader(image), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Compressed != int64(packed.Len()) || r.Sum != sha256.Sum256(image) || r.Dict < 5<<20 || r.Dict > 8<<20 {
		t.Errorf("it says %+v of %d bytes", r, packed.Len())
	}
	if got := decode(t, packed.Bytes(), "64MiB"); !bytes.Equal(got, image) {
		t.Error("what is unpacked isn't what was packed")
	}
	o.Workers = 1
	if _, err := Encode(t.Context(), &again, bytes.NewReader(image), o); err != nil || !bytes.Equal(again.Bytes(), packed.Bytes()) {
		t.Errorf("a second time it is another %d bytes, %v", again.Len(), err)
	}
	list := listing(t, packed.Bytes())
	if !strings.Contains(list, "block\t1\t1\t1\t") || strings.Count(list, "\nblock\t") != 1 {
		t.Errorf("not one stream of one block:\n%s", list)
	}
	o.Copies = nil
	o.Content = append(content, Extent{6 << 20, 5 << 20})
	o.Content[len(content)-1], o.Content[len(content)] = o.Content[len(content)], o.Content[len(content)-1]
	var plain bytes.Buffer
	if _, err := Encode(t.Context(), &plain, bytes.NewReader(image), o); err != nil {
		t.Fatal(err)
	}
	if saved := plain.Len() - packed.Len(); saved < 700*k {
		t.Errorf("the copy spares %d bytes", saved)
	}
}

func listing(t *testing.T, packed []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.xz")
	if err := os.WriteFile(path, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "xz", "--list", "--robot", "-vv", path).CombinedOutput()
	if err != nil {
		t.Fatalf("xz --list: %v: %s", err, out)
	}
	return string(out)
}

// Slot B behind a slot as large as one may be: a decoder with a limit of 1 GiB
// takes it, and the copy costs next to nothing.
func TestLongestCopy(t *testing.T) {
	need(t)
	const slot = 449 << 20 // 448 MiB and the place of a logical partition's record
	size := int64(2*slot + 4096)
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	part := noise(rand.New(rand.NewPCG(1, 2)), 1<<20)
	for _, at := range []int64{0, 100 << 20, slot, slot + 100<<20} {
		if _, err := f.WriteAt(part, at); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	r, err := Encode(t.Context(), &packed, f, Options{
		Size: size, Content: []Extent{{0, 1 << 20}, {100 << 20, 1 << 20}}, Copies: []Copy{{Extent{slot, slot}, 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Dict != MaxDict || r.Compressed > 2<<20+300<<10 {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--memlimit-decompress=1GiB")
	cmd.Stdin = &packed
	sum := sha256.New()
	cmd.Stdout = sum
	if err := cmd.Run(); err != nil {
		t.Fatalf("xz: %v", err)
	}
	if [32]byte(sum.Sum(nil)) != r.Sum {
		t.Error("what is unpacked isn't what was packed")
	}
}

func TestRefused(t *testing.T) {
	need(t)
	image := bytes.Repeat([]byte{1, 2, 3, 4}, 1<<18)
	all := []Extent{{0, 1 << 20}}
	for name, o := range map[string]Options{
		"a copy that isn't one": {Size: 1 << 20, Content: all[:1], Copies: []Copy{{Extent{1 << 19, 1 << 19}, 1<<19 - 16 + 1}}},
		"a copy of what comes":  {Size: 1 << 20, Content: all, Copies: []Copy{{Extent{0, 64}, 64}}},
		"too far behind":        {Size: 1 << 40, Content: all, Copies: []Copy{{Extent{1 << 30, 1 << 20}, 0}}},
		"a hole first":          {Size: 1 << 20},
		"shorter than it says":  {Size: 1 << 21, Content: []Extent{{0, 1 << 21}}},
	} {
		if _, err := Encode(t.Context(), new(bytes.Buffer), bytes.NewReader(image), o); err == nil {
			t.Errorf("%s: it is packed", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Encode(ctx, new(bytes.Buffer), bytes.NewReader(image), Options{Size: 1 << 20, Content: all}); err == nil {
		t.Error("cancelled, it is packed all the same")
	}
}

// Every length that a chunk can have is right.
func TestRuns(t *testing.T) {
	need(t)
	head := noise(rand.New(rand.NewPCG(3, 3)), 128<<10)
	head[len(head)-1] = 0
	for _, n := range []int{32, 48, 272, 273 * 3, 273*7 + 1, 4096, 4096 * 3, 1<<21 - 16, 1 << 21, 1<<21 + 16, 1<<21 + 4096, 5 << 20} {
		n := (n + 15) / 16 * 16
		image := append(bytes.Clone(head), make([]byte, 2*n)...)
		o := Options{Size: int64(len(image)), Content: []Extent{{0, int64(len(head))}}}
		for _, distance := range []int{16, 4096, 100_000 / 16 * 16} {
			at := len(head) + n
			copy(image[at:], make([]byte, n))
			for i := range n {
				image[at+i] = image[at+i-distance]
			}
			o.Copies = []Copy{{Extent{int64(at), int64(n)}, int64(at - distance)}}
			var packed bytes.Buffer
			if _, err := Encode(t.Context(), &packed, bytes.NewReader(image), o); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(decode(t, packed.Bytes(), "256MiB"), image) {
				t.Errorf("%d bytes from %d before: wrong", n, distance)
			}
		}
	}
}
