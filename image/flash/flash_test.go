package flash

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/image/bmap"
	"farhand/image/disk"
	"farhand/image/fat"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
	"farhand/image/xz"
	"farhand/internal/testenv"
)

const mib = 1 << 20

// image is one as the builder makes it, with what is published beside it.
type image struct {
	plain, packed string
	bytes         []byte
	content       []disk.Extent
}

func build(t *testing.T) image {
	t.Helper()
	for _, tool := range []string{"mkfs.vfat", "mcopy", "xz"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, tool, err == nil, "an image is made to be flashed")
	}
	dir := t.TempDir()
	tree, a, s := filepath.Join(dir, "tree"), filepath.Join(dir, "a"), filepath.Join(dir, "s")
	i := image{plain: filepath.Join(dir, "farhand.img"), packed: filepath.Join(dir, "farhand.img.xz")}
	noise := make([]byte, mib+5*4096)
	rand.Read(noise)
	clear(noise[mib/4 : mib/2])
	must(t, os.Mkdir(tree, 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "autoboot.txt"), []byte("[all]\n"), 0o644))
	must(t, os.WriteFile(s, noise, 0o644))
	must(t, disk.MakeFAT(t.Context(), disk.FAT{Bits: 16, Label: layout.AutobootLabel, Size: 9 * mib, Tree: tree, Epoch: time.Unix(1_790_000_000, 0)}, a))
	p := disk.Plan{Signature: layout.Signature, Partitions: []disk.Partition{
		{Number: 1, Type: 0x0c, Size: 9 * mib, From: a},
		{Number: 5, Type: 0x83, Size: 2 * mib, From: s}, {Number: 6, Type: 0x83, Size: 2 * mib, From: s}, {Number: 7, Type: 0x83, Size: 4 * mib, Blank: mib},
	}}
	must(t, disk.Write(p, i.plain))
	var err error
	i.bytes, err = os.ReadFile(i.plain)
	must(t, err)
	i.content, err = p.Content()
	must(t, err)
	o := xz.Options{Size: int64(len(i.bytes)), Level: 1}
	var extents []bmap.Extent
	for _, x := range i.content {
		o.Content = append(o.Content, xz.Extent(x))
		extents = append(extents, bmap.Extent(x))
	}
	copies, err := p.Copies()
	must(t, err)
	for _, c := range copies {
		o.Copies = append(o.Copies, xz.Copy{Extent: xz.Extent(c.Extent), Of: c.Of})
	}
	var packed bytes.Buffer
	_, err = xz.Encode(t.Context(), &packed, bytes.NewReader(i.bytes), o)
	must(t, err)
	must(t, os.WriteFile(i.packed, packed.Bytes(), 0o644))
	m, err := bmap.Make(t.Context(), bytes.NewReader(i.bytes), o.Size, disk.Block, extents)
	must(t, err)
	must(t, os.WriteFile(i.plain+".bmap", m.Marshal(), 0o644))
	return i
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func settings() map[string][]byte {
	return map[string][]byte{"rpi-preseed.toml": []byte("config_version = \"1.0\"\n"), "farhand.toml": bytes.Repeat([]byte("# x\n"), 2000)}
}

// write flashes to a path that was inspected.
func write(ctx context.Context, t *testing.T, name, mapName, target string, files map[string][]byte, tell Progress) (Result, error) {
	t.Helper()
	s, err := OpenSource(name, mapName)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	where, err := InspectTarget(target)
	if err != nil {
		return Result{}, err
	}
	f, err := OpenTarget(where)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	c := Card{Image: s, When: time.Unix(1_790_000_000, 0), Progress: tell}
	if files != nil {
		c.Files = func(context.Context) (map[string][]byte, error) { return files, nil }
	}
	return Write(ctx, f, c)
}

// check compares what is on a card with the image, but for the first partition's
// files, which are the settings and the image's.
func (i image) check(t *testing.T, target string, files map[string][]byte) {
	t.Helper()
	f, err := os.OpenFile(target, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	tab, err := table.Read(f)
	must(t, err)
	p := tab.Partitions[0]
	from, to := p.Start*512, (p.Start+p.Size)*512
	for _, x := range i.content {
		if x.Start >= from && x.Start < to {
			continue
		}
		got := make([]byte, x.Length)
		if _, err := f.ReadAt(got, x.Start); err != nil || !bytes.Equal(got, i.bytes[x.Start:x.Start+x.Length]) {
			t.Errorf("bytes from %d aren't the image's: %v", x.Start, err)
		}
	}
	v, err := fat.Open(part{f, from}, to-from)
	must(t, err)
	for name, want := range files {
		if got, err := v.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := v.ReadFile("autoboot.txt"); err != nil || string(got) != "[all]\n" {
		t.Errorf("autoboot.txt: %q, %v", got, err)
	}
}

type part struct {
	f  *os.File
	at int64
}

func (p part) ReadAt(b []byte, off int64) (int, error)  { return p.f.ReadAt(b, p.at+off) }
func (p part) WriteAt(b []byte, off int64) (int, error) { return p.f.WriteAt(b, p.at+off) }

func TestWrite(t *testing.T) {
	i := build(t)
	zipped := filepath.Join(t.TempDir(), "x.img.gz")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(i.bytes)
	must(t, z.Close())
	must(t, os.WriteFile(zipped, b.Bytes(), 0o644))
	alone := filepath.Join(t.TempDir(), "alone.img.xz") // without a block map
	must(t, os.Link(i.packed, alone))
	for name, source := range map[string]string{"plain": i.plain, "xz": i.packed, "gzip": zipped, "no map": alone} {
		t.Run(name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "card")
			must(t, os.WriteFile(target, bytes.Repeat([]byte{0xee}, 30*mib), 0o600)) // longer, and something else
			last := map[Phase]int64{}
			r, err := write(t.Context(), t, source, "", target, settings(), func(p Phase, done, total int64) {
				if done < last[p] || total != 0 && done > total {
					t.Errorf("%s: %d of %d after %d", p, done, total, last[p])
				}
				last[p] = done
			})
			must(t, err)
			mapped := int64(0)
			for _, x := range i.content {
				mapped += x.Length
			}
			if name == "no map" || name == "gzip" {
				mapped = r.Size
			}
			if r.Size != int64(len(i.bytes)) || r.Written != mapped || last[Writing] != mapped || last[Verifying] != mapped {
				t.Errorf("%+v, told of %v, want %d", r, last, mapped)
			}
			if info, err := os.Stat(target); err != nil || info.Size() != r.Size {
				t.Errorf("the file has %d bytes, %v", info.Size(), err)
			}
			i.check(t, target, settings())
		})
	}
}

// bare says that a card has no partition table.
func bare(t *testing.T, target string) {
	t.Helper()
	b, err := os.ReadFile(target)
	must(t, err)
	if len(b) < 512 || !bytes.Equal(b[:512], make([]byte, 512)) {
		t.Error("after a failure the card has a partition table")
	}
}

// A damaged image, or one that isn't its block map's, leaves no card that would
// boot.
func TestCorrupt(t *testing.T) {
	i := build(t)
	packed, err := os.ReadFile(i.packed)
	must(t, err)
	edit := func(b []byte, at int) []byte { b = bytes.Clone(b); b[at] ^= 1; return b }
	for name, c := range map[string]struct {
		content []byte
		mapped  bool
	}{
		"a bit of the xz":          {edit(packed, len(packed)/2), true},
		"the same without map":     {edit(packed, len(packed)/2), false},
		"the xz's own checksum":    {edit(packed, len(packed)-40), false},
		"the xz is cut":            {packed[:len(packed)-5000], true},
		"the xz is cut, no map":    {packed[:len(packed)-5000], false},
		"the xz's end is cut":      {packed[:len(packed)-20], false},
		"a bit of the plain image": {edit(i.bytes, int(i.content[len(i.content)-1].Start)+100), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, target := filepath.Join(dir, "image"), filepath.Join(dir, "card")
			must(t, os.WriteFile(source, c.content, 0o600))
			mapName := ""
			if c.mapped {
				mapName = i.plain + ".bmap"
			}
			_, err := write(t.Context(), t, source, mapName, target, settings(), nil)
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("it says %v", err)
			}
			bare(t, target)
		})
	}
}

// What a card's settings cost, a key at a relay, is asked for when the image is on
// the card, and a card that doesn't get them doesn't start.
func TestFilesComeLast(t *testing.T) {
	i := build(t)
	cut := filepath.Join(t.TempDir(), "cut.img.xz")
	packed, err := os.ReadFile(i.packed)
	must(t, err)
	must(t, os.WriteFile(cut, packed[:len(packed)-20], 0o600))
	none := errors.New("no key")
	for name, c := range map[string]struct {
		source string
		stop   Phase
		fail   error
		asked  bool
		want   error
	}{
		"whole":                  {source: i.packed, asked: true},
		"damaged":                {source: cut, want: ErrCorrupt},
		"stopped while writing":  {source: i.packed, stop: Writing, want: context.Canceled},
		"stopped while verified": {source: i.packed, stop: Verifying, want: context.Canceled},
		"no key":                 {source: i.packed, fail: none, asked: true, want: none},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			target := filepath.Join(t.TempDir(), "card")
			s, err := OpenSource(c.source, "")
			must(t, err)
			defer s.Close()
			f, err := OpenTarget(Target{Path: target})
			must(t, err)
			defer f.Close()
			var last Phase
			asked := 0
			_, err = Write(ctx, f, Card{Image: s, When: time.Unix(1_790_000_000, 0),
				Progress: func(p Phase, _, _ int64) {
					if last = p; p == c.stop {
						cancel()
					}
				},
				Files: func(context.Context) (map[string][]byte, error) {
					if asked++; last != Verifying {
						t.Errorf("asked for after %s", last)
					}
					return settings(), c.fail
				}})
			if !errors.Is(err, c.want) || asked > 1 || (asked == 1) != c.asked {
				t.Errorf("asked %d times; %v", asked, err)
			}
			if c.want != nil {
				bare(t, target)
			}
		})
	}
}

// A checksum beside an image is compared before anything is written, in whatever
// form it is there; one that can't be understood isn't passed over.
func TestChecksum(t *testing.T) {
	i := build(t)
	image, err := os.ReadFile(i.packed)
	must(t, err)
	right := fmt.Sprintf("%x", sha256.Sum256(image))
	wrong := strings.Repeat("0", 64)
	for name, c := range map[string]struct{ text, want string }{
		"sha256sum":                {right + "  farhand.img.xz\n", ""},
		"of a binary":              {right + " *farhand.img.xz\r\n", ""},
		"alone":                    {strings.ToUpper(right), ""},
		"of a renamed image":       {right + "  farhand-1.0-arm64.img.xz\n", ""},
		"of the BSDs":              {"SHA256 (farhand.img.xz) = " + right + "\n", ""},
		"with a path":              {right + "  out/farhand.img.xz\n", ""},
		"among others":             {wrong + "  other.img.xz\n" + right + "  farhand.img.xz\n# " + wrong + "\n", ""},
		"with a mark":              {"\ufeff" + right + "  farhand.img.xz\n", ""},
		"twice":                    {strings.Repeat(right+"  farhand.img.xz\n", 2), ""},
		"another":                  {wrong + "  farhand.img.xz\n", "isn't what its checksum says"},
		"another, renamed":         {wrong + "  other.img.xz\n", "isn't what its checksum says"},
		"empty":                    {"", "no SHA-256 of farhand.img.xz"},
		"cut off":                  {right[:63] + "  farhand.img.xz\n", "no SHA-256 of farhand.img.xz"},
		"too long":                 {right + "0  farhand.img.xz\n", "no SHA-256 of farhand.img.xz"},
		"of others":                {wrong + "  a.img.xz\n" + right + "  b.img.xz\n", "no SHA-256 of farhand.img.xz"},
		"two different":            {wrong + "  farhand.img.xz\n" + right + "  farhand.img.xz\n", "several"},
		"a page that wasn't there": {"<!DOCTYPE html>\n<title>404</title>\n", "no SHA-256 of farhand.img.xz"},
		"endless":                  {right + "  farhand.img.xz\n" + strings.Repeat("#", maxSums), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(i.packed+".sha256", []byte(c.text), 0o600))
			s, err := OpenSource(i.packed, "")
			said := ""
			if err == nil {
				defer s.Close()
				if s.Reads(i.packed+".sha256") == false {
					t.Error("it might be overwritten")
				}
				last := int64(0)
				said, err = s.Check(t.Context(), func(p Phase, done, total int64) {
					if p != Checking || done < last || total != int64(len(image)) {
						t.Errorf("%s: %d of %d after %d", p, done, total, last)
					}
					last = done
				})
			}
			switch {
			case c.want == "" && (err != nil || said != i.packed+".sha256"):
				t.Errorf("%q, %v", said, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("it says %v, want %q", err, c.want)
			case c.want == ErrSum.Error() && !errors.Is(err, ErrSum):
				t.Errorf("%v is no ErrSum", err)
			}
		})
	}
	must(t, os.Remove(i.packed+".sha256"))
	s, err := OpenSource(i.packed, "")
	must(t, err)
	defer s.Close()
	if said, err := s.Check(t.Context(), func(Phase, int64, int64) { t.Error("something is checked") }); said != "" || err != nil {
		t.Errorf("without one: %q, %v", said, err)
	}
	must(t, os.WriteFile(i.packed+".sha256", []byte(right), 0o600))
	checked, err := OpenSource(i.packed, "")
	must(t, err)
	defer checked.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := checked.Check(ctx, func(Phase, int64, int64) { cancel() }); !errors.Is(err, context.Canceled) && len(image) > step {
		t.Errorf("given up: %v", err)
	}
	// What was read for it is still there to be written.
	if _, err := checked.Check(t.Context(), func(Phase, int64, int64) {}); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(checked); err != nil || !bytes.Equal(b, i.bytes) {
		t.Errorf("%d bytes afterwards, %v", len(b), err)
	}
}

// A block map that was left there by another version is found out before the card
// is lost.
func TestAnotherVersionsMap(t *testing.T) {
	i := build(t)
	other := bytes.Clone(i.bytes)
	tab, err := table.Read(bytes.NewReader(other))
	must(t, err)
	at := bytes.Index(other[tab.Partitions[0].Start*table.Sector:], []byte("AUTOBOOTTXT"))
	if at < 0 {
		t.Fatal("there is no autoboot.txt")
	}
	other[tab.Partitions[0].Start*table.Sector+int64(at)+22] ^= 1 // the time of its change
	dir := t.TempDir()
	source, target := filepath.Join(dir, "x.img"), filepath.Join(dir, "card")
	must(t, os.WriteFile(source, other, 0o600))
	must(t, os.WriteFile(target, []byte("another system"), 0o600))
	_, err = write(t.Context(), t, source, i.plain+".bmap", target, settings(), nil)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), i.plain+".bmap is another image's") {
		t.Errorf("it says %v", err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "another system" {
		t.Errorf("what was on the card is gone: %d bytes, %v", len(b), err)
	}
}

func TestSourceRefused(t *testing.T) {
	i := build(t)
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, b, 0o600))
		return name
	}
	wrong, err := os.ReadFile(i.plain + ".bmap")
	must(t, err)
	for name, c := range map[string]struct{ image, m, want string }{
		"nothing":         {filepath.Join(dir, "none"), "", "no such file"},
		"empty":           {file("empty", nil), "", "no image"},
		"zip":             {file("zip", []byte("PK\x03\x04 and more")), "", "unpack it first"},
		"another map":     {file("short.img", make([]byte, mib)), i.plain + ".bmap", "is for an image of"},
		"a damaged map":   {i.plain, file("x.bmap", bytes.Replace(wrong, []byte("sha256"), []byte("sha512"), 1)), "sha512"},
		"a map not there": {i.plain, filepath.Join(dir, "no.bmap"), "no such file"},
	} {
		s, err := OpenSource(c.image, c.m)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Interrupted at any point, the card has no partition table.
func TestInterrupted(t *testing.T) {
	i := build(t)
	for _, phase := range []Phase{Writing, Verifying} {
		for _, at := range []int64{1, mib, 3 * mib} {
			t.Run(fmt.Sprintf("%s %d", phase, at), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				target := filepath.Join(t.TempDir(), "card")
				_, err := write(ctx, t, i.plain, "", target, settings(), func(p Phase, done, _ int64) {
					if p == phase && done >= at {
						cancel()
					}
				})
				if !errors.Is(err, context.Canceled) || errors.Is(err, ErrCorrupt) {
					t.Fatalf("it says %v", err)
				}
				bare(t, target)
			})
		}
	}
}

// A card that forgets is found out.
func TestForgetfulCard(t *testing.T) {
	i := build(t)
	target := filepath.Join(t.TempDir(), "card")
	changed := false
	_, err := write(t.Context(), t, i.packed, "", target, settings(), func(p Phase, _, _ int64) {
		if p == Verifying && !changed {
			changed = true
			f, err := os.OpenFile(target, os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			at := i.content[len(i.content)-2].Start + 77
			_, err = f.WriteAt([]byte{i.bytes[at] ^ 1}, at)
			must(t, err)
		}
	})
	if !errors.Is(err, ErrVerify) {
		t.Fatalf("it says %v", err)
	}
	bare(t, target)
}

// An image without our first partition takes no settings, and what was on the card
// stays there.
func TestForeignImage(t *testing.T) {
	i := build(t)
	dir := t.TempDir()
	renamed := bytes.Replace(i.bytes, []byte(layout.AutobootLabel), []byte("BOOTFS "), 1)
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"nothing in it":        {make([]byte, mib+5), "no image of farhand's"},
		"short":                {[]byte("# A text\n"), "no image of farhand's"},
		"another first volume": {renamed, "BOOTFS"},
		"no file system":       {slices.Concat(i.bytes[:64<<10], make([]byte, len(i.bytes)-64<<10)), "no image of farhand's"},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := filepath.Join(dir, "x.img"), filepath.Join(t.TempDir(), "card")
			must(t, os.WriteFile(source, c.content, 0o600))
			must(t, os.WriteFile(target, []byte("another system"), 0o600))
			if _, err := write(t.Context(), t, source, "", target, settings(), nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, want %q", err, c.want)
			}
			if b, err := os.ReadFile(target); err != nil || string(b) != "another system" {
				t.Errorf("what was on the card is gone: %d bytes, %v", len(b), err)
			}
			r, err := write(t.Context(), t, source, "", target, nil, nil)
			if err != nil || r.Size != int64(len(c.content)) {
				t.Errorf("without settings: %+v, %v", r, err)
			}
		})
	}
}

// Half of a download has no end that says so, if it is plain or was packed
// afterwards and no block map lies beside it: the partitions tell.
func TestCutOff(t *testing.T) {
	i := build(t)
	zip := func(b []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		z.Write(b)
		must(t, z.Close())
		return out.Bytes()
	}
	tab, err := table.Read(bytes.NewReader(i.bytes))
	must(t, err)
	first, last := tab.Partitions[0].Start*table.Sector, i.content[len(i.content)-1].Start
	for name, content := range map[string][]byte{
		"plain": i.bytes[:len(i.bytes)-1], "before the last content": i.bytes[:last], "within the first partition": i.bytes[:first+mib],
		"before the first partition": i.bytes[:first], "packed": zip(i.bytes[:len(i.bytes)-1]), "packed, before the first partition": zip(i.bytes[:first]),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, target := filepath.Join(dir, "image"), filepath.Join(dir, "card")
			must(t, os.WriteFile(source, content, 0o600))
			if _, err := write(t.Context(), t, source, "", target, settings(), nil); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("it says %v", err)
			}
			if info, err := os.Stat(target); err == nil && info.Size() > 0 {
				bare(t, target)
			}
		})
	}
}

// What an image is read from is known by every name that it has.
func TestReads(t *testing.T) {
	i := build(t)
	dir := t.TempDir()
	linked, pointed, other := filepath.Join(dir, "linked"), filepath.Join(dir, "pointed"), filepath.Join(dir, "other")
	must(t, os.Link(i.packed, linked))
	must(t, os.Symlink(i.plain+".bmap", pointed))
	must(t, os.WriteFile(other, i.bytes, 0o600))
	s, err := OpenSource(i.packed, "")
	must(t, err)
	defer s.Close()
	for path, want := range map[string]bool{i.packed: true, linked: true, i.plain + ".bmap": true, pointed: true, other: false, i.plain: false, filepath.Join(dir, "none"): false} {
		if got := s.Reads(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
