package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

func TestRead(t *testing.T) {
	b := newBench(t)
	b.put("ten", "0123456789")
	b.put("crlf", "a\r\nb\n\xff")
	b.put("empty", "")
	n := func(v int64) *int64 { return &v }
	cases := []struct {
		name      string
		req       wire.FileRead
		limit     int64
		content   string
		truncated bool
		attempted int64 // != 0: FILE_TOO_LARGE
	}{
		{"whole", wire.FileRead{Path: "ten"}, big, "0123456789", false, 0},
		{"exactly the limit", wire.FileRead{Path: "ten"}, 10, "0123456789", false, 0},
		{"over the limit", wire.FileRead{Path: "ten"}, 9, "", false, 10},
		{"offset", wire.FileRead{Path: "ten", Offset: 4}, 6, "456789", false, 0},
		{"range", wire.FileRead{Path: "ten", Offset: 2, Length: n(3)}, 3, "234", true, 0},
		{"range to the end", wire.FileRead{Path: "ten", Offset: 7, Length: n(3)}, 9, "789", false, 0},
		{"range past the end", wire.FileRead{Path: "ten", Offset: 8, Length: n(5)}, 9, "89", false, 0},
		{"length over the limit of a small file", wire.FileRead{Path: "ten", Length: n(100)}, 99, "", false, 100},
		{"beyond the end", wire.FileRead{Path: "ten", Offset: 11}, 9, "", false, 0},
		{"far beyond the end", wire.FileRead{Path: "ten", Offset: 1 << 62, Length: n(5)}, 9, "", false, 0},
		{"at the end", wire.FileRead{Path: "ten", Offset: 10, Length: n(1)}, 9, "", false, 0},
		{"bytes as they are", wire.FileRead{Path: "crlf"}, big, "a\r\nb\n\xff", false, 0},
		{"empty", wire.FileRead{Path: "empty"}, 1, "", false, 0},
	}
	for _, c := range cases {
		got, trace, err := b.Read(b.ctx, c.req, c.limit)
		if c.attempted != 0 {
			want(t, err, wire.FileTooLarge)
			d := wire.AsError(err).Details
			if d["attempted_bytes"] != c.attempted || d["max_file_size_bytes"] != c.limit || d["op"] != "FILE_READ" {
				t.Errorf("%s: details %v", c.name, d)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if string(got.Content) != c.content || got.Truncated != c.truncated || got.SizeBytes != int64(len(c.content)) {
			t.Errorf("%s: %q, %+v", c.name, got.Content, got)
		}
		if trace.Bytes != got.SizeBytes || trace.Path != b.in(c.req.Path) {
			t.Errorf("%s: trace %+v", c.name, trace)
		}
	}
	for _, req := range []wire.FileRead{{Path: "ten", Offset: -1}, {Path: "ten", Length: n(0)}, {Path: "ten", Length: n(-1)}} {
		_, _, err := b.Read(b.ctx, req, big)
		want(t, err, wire.InternalError, "invalid_payload")
	}
}

// TestReadFrame keeps answers in a frame whatever was negotiated: text may grow
// sixfold, base64 by a third.
func TestReadFrame(t *testing.T) {
	b := newBench(t)
	b.put("worst", strings.Repeat("\x01", wire.MaxText+1))
	b.must(os.Truncate(b.in("worst"), wire.MaxText))
	got, _, err := b.Read(b.ctx, wire.FileRead{Path: "worst"}, 1<<40)
	b.must(err)
	if n := got.JSONSize(); n > wire.MaxFrame {
		t.Errorf("%d bytes of JSON", n)
	}
	b.must(os.Truncate(b.in("worst"), wire.MaxText+1))
	_, _, err = b.Read(b.ctx, wire.FileRead{Path: "worst"}, 1<<40)
	want(t, err, wire.FileTooLarge)
	for _, req := range []wire.FileRead{{Encoding: wire.EncodingBase64}, {Format: wire.FormatBytes}} {
		req.Path = "worst"
		b.must(os.Truncate(b.in("worst"), wire.MaxBinary))
		got, _, err = b.Read(b.ctx, req, 1<<40)
		b.must(err)
		if got.Encoding != wire.EncodingBase64 || got.JSONSize() > wire.MaxFrame {
			t.Errorf("%s, %d bytes of JSON", got.Encoding, got.JSONSize())
		}
		b.must(os.Truncate(b.in("worst"), wire.MaxBinary+1))
		_, _, err = b.Read(b.ctx, req, 1<<40)
		want(t, err, wire.FileTooLarge)
	}
}

// TestReadKinds refuses at once what isn't a regular file.
func TestReadKinds(t *testing.T) {
	b := newBench(t)
	b.mkdir("dir")
	b.must(unix.Mkfifo(b.in("fifo"), 0o644))
	b.link("fifo", "tofifo")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	b.must(err)
	defer unix.Close(fd)
	// A socket's name has 107 bytes at most, so it is bound from where it lies.
	here, err := os.Getwd()
	b.must(err)
	t.Chdir(b.dir)
	b.must(unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
	b.must(os.Chdir(here))

	_, err = b.read("dir")
	want(t, err, wire.InternalError, "is_a_directory")
	for _, path := range []string{"fifo", "tofifo", "socket"} {
		_, err = b.read(path)
		want(t, err, wire.InternalError, "not_a_regular_file")
		want(t, b.write(path, "x"), wire.InternalError, "not_a_regular_file")
	}
	_, err = b.read("missing")
	want(t, err, wire.PathNotFound)
	_, err = b.read("fifo/x")
	want(t, err, wire.PathNotFound, "not_a_directory")
}

// TestReadShrinking has the file cut while it is read.
func TestReadShrinking(t *testing.T) {
	b := newBench(t)
	b.put("log", strings.Repeat("x", 1000))
	f, err := os.OpenFile(b.in("log"), os.O_RDWR, 0)
	b.must(err)
	defer f.Close()
	answer := &wire.FileContents{}
	cut := cancelAt{Context: b.ctx, at: 1, do: func() error { return f.Truncate(10) }}
	b.must(new(Root).readRange(&cut, asked{}, int(f.Fd()), wire.FileRead{}, big, answer))
	if answer.SizeBytes != 10 || answer.Truncated {
		t.Errorf("%d bytes, truncated %t", answer.SizeBytes, answer.Truncated)
	}
	grow := cancelAt{Context: b.ctx, at: 1, do: func() error { return f.Truncate(2000) }}
	b.must(new(Root).readRange(&grow, asked{}, int(f.Fd()), wire.FileRead{}, big, answer))
	if answer.SizeBytes != 10 || !answer.Truncated {
		t.Errorf("%d bytes, truncated %t", answer.SizeBytes, answer.Truncated)
	}
}

// cancelAt is a context that does something when it is asked for the at-th time.
type cancelAt struct {
	context.Context
	asked, at int
	do        func() error
}

func (c *cancelAt) Err() error {
	if c.asked++; c.asked == c.at {
		return c.do()
	}
	return c.Context.Err()
}

func TestCancelled(t *testing.T) {
	b := newBench(t)
	b.put("d/f", "f")
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	b.ctx = ctx
	_, err := b.read("d/f")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if err := b.delete("d", true); !errors.Is(err, context.Canceled) {
		t.Errorf("delete: %v", err)
	}
	b.has("d/f", "f")
}

func TestStat(t *testing.T) {
	b := newBench(t)
	b.put("data.CSV", "1,2\n")
	b.mkdir("dir.csv")
	b.link("data.CSV", "link")
	b.link(b.out+"/secret", "away")
	b.link("nowhere", "dangling")
	b.must(os.Chmod(b.in("data.CSV"), 0o640))
	b.must(os.Chmod(b.in("dir.csv"), os.ModeSticky|0o777))
	b.must(unix.UtimesNanoAt(unix.AT_FDCWD, b.in("data.CSV"), []unix.Timespec{{Sec: 1}, {Sec: 1712345678, Nsec: 500e6}}, 0))

	got, err := b.stat("data.CSV")
	b.must(err)
	if !got.Exists || !*got.IsFile || *got.IsDir || *got.IsSymlink || *got.SizeBytes != 4 ||
		*got.MTime != 1712345678.5 || *got.CTime < 1712345678 || *got.Mode != "0640" ||
		*got.OwnerUID != uint32(os.Geteuid()) || *got.MIMEType != "text/csv" || *got.Path != b.in("data.CSV") {
		t.Errorf("file: %s", js(got))
	}
	got, err = b.stat("dir.csv")
	b.must(err)
	if !*got.IsDir || *got.IsFile || *got.Mode != "1777" || got.MIMEType != nil {
		t.Errorf("directory: %s", js(got))
	}
	got, err = b.stat("link")
	b.must(err)
	if !*got.IsFile || !*got.IsSymlink || *got.Path != b.in("data.CSV") || *got.SizeBytes != 4 {
		t.Errorf("link: %s", js(got))
	}
	got, err = b.lstat("link")
	b.must(err)
	if *got.IsFile || *got.IsDir || !*got.IsSymlink || *got.Path != b.in("link") || *got.SizeBytes != 8 || *got.Mode != "0777" {
		t.Errorf("link itself: %s", js(got))
	}
	got, err = b.lstat("away")
	b.must(err)
	if !*got.IsSymlink || *got.Path != b.in("away") {
		t.Errorf("escaping link itself: %s", js(got))
	}
	_, err = b.stat("away")
	want(t, err, wire.PathOutsideAllowedRoot)
	got, err = b.stat("dangling")
	b.must(err)
	if s := js(got); s != `{"exists":false,"is_file":null,"is_dir":null,"is_symlink":null,"size_bytes":null,"mtime":null,"ctime":null,`+
		`"mode":null,"owner_uid":null,"owner_gid":null,"mime_type":null,"path":"`+b.in("nowhere")+`"}` {
		t.Errorf("dangling: %s", s)
	}
}

func js(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestMIME(t *testing.T) {
	for name, want := range map[string]string{
		"a.json": "application/json", "A.PNG": "image/png", "a.tar.gz": "application/gzip", "part.gcode": "text/x-gcode",
		"noext": "", ".json": "", "a.": "", "a.unheardof": "", "ü.md": "text/markdown",
	} {
		if got := mimeType(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func BenchmarkStat(b *testing.B) {
	x := newBench(b)
	x.put("f.txt", "x")
	req := wire.FileStat{Path: x.in("f.txt")}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := x.Stat(x.ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatDeep(b *testing.B) {
	x := newBench(b)
	x.put("1/2/3/4/5/f.txt", "x")
	req := wire.FileStat{Path: x.in("1/2/3/4/5/f.txt")}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := x.Stat(x.ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead8MiB(b *testing.B) {
	x := newBench(b)
	x.must(os.WriteFile(x.in("f"), bytes.Repeat([]byte("x"), 8<<20), 0o644))
	req := wire.FileRead{Path: x.in("f"), Encoding: wire.EncodingBase64}
	b.SetBytes(8 << 20)
	b.ReportAllocs()
	for b.Loop() {
		answer, _, err := x.Read(x.ctx, req, big)
		if err != nil {
			b.Fatal(err)
		}
		answer.Release() // as the sender does
	}
}

// TestReadEncoded: what several processors read and encode is what one would.
func TestReadEncoded(t *testing.T) {
	b := newBench(t)
	content := make([]byte, 3<<20+5)
	for i := range content {
		content[i] = byte(i*31 + i>>11)
	}
	b.must(os.WriteFile(b.in("f"), content, 0o644))
	for _, c := range []struct{ off, n int }{{0, len(content)}, {0, parallel}, {1, parallel + 1}, {7, parallel + 2}, {12345, 12*share + 1}, {len(content) - parallel, parallel}} {
		length := int64(c.n)
		answer, trace, err := b.Read(b.ctx, wire.FileRead{Path: b.in("f"), Encoding: wire.EncodingBase64, Offset: int64(c.off), Length: &length}, big)
		b.must(err)
		if answer.Text == nil {
			t.Fatalf("%+v was not read in parallel", c)
		}
		got, err := base64.StdEncoding.Strict().DecodeString(string(answer.Text))
		b.must(err)
		if !bytes.Equal(got, content[c.off:c.off+c.n]) || answer.SizeBytes != length || trace.Bytes != length || answer.Truncated != (c.off+c.n < len(content)) {
			t.Errorf("%+v: %d bytes, size %d, truncated %t", c, len(got), answer.SizeBytes, answer.Truncated)
		}
		answer.Release()
	}
}

func TestReadEncodedShrinking(t *testing.T) {
	b := newBench(t)
	b.put("f", strings.Repeat("x", parallel))
	f, err := os.Open(b.in("f"))
	b.must(err)
	defer f.Close()
	n := 2 * parallel
	if err := readEncoded(b.ctx, int(f.Fd()), 0, n, make([]byte, base64.StdEncoding.EncodedLen(n))); !errors.Is(err, errShrank) {
		t.Errorf("err = %v", err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := readEncoded(ctx, int(f.Fd()), 0, parallel, make([]byte, base64.StdEncoding.EncodedLen(parallel))); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}
