package files

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

func (b *bench) piece(req wire.TransferRead) (wire.TransferData, []byte, error) {
	a, _, err := b.Piece(b.ctx, req)
	if err != nil {
		return wire.TransferData{}, nil, err
	}
	data := bytes.Clone(a.Data)
	a.Release()
	return a.Payload.(wire.TransferData), data, nil
}

func TestPieces(t *testing.T) {
	b := newBench(t)
	content := noise(6, 2*wire.TransferPiece+100)
	b.put("f", string(content))
	when := time.Unix(1600000000, 987654321)
	b.must(os.Chtimes(b.in("f"), when, when))
	var got []byte
	version := ""
	for {
		d, data, err := b.piece(wire.TransferRead{Path: "f", Offset: int64(len(got)), Length: wire.TransferPiece, Version: version})
		if err != nil {
			t.Fatal(err)
		}
		if d.SHA256 != digest(data) || d.Length != int64(len(data)) || d.Size != int64(len(content)) || d.MTimeNS != when.UnixNano() || d.Mode != "0644" {
			t.Fatalf("%+v", d)
		}
		version = d.Version
		if got = append(got, data...); len(data) < wire.TransferPiece {
			break
		}
	}
	if !bytes.Equal(got, content) {
		t.Error("another content")
	}
	d, data, err := b.piece(wire.TransferRead{Path: "f", Offset: 5, Length: wire.TransferHashMost, HashOnly: true, Version: version})
	if err != nil || len(data) != 0 || d.SHA256 != digest(content[5:]) || d.Length != int64(len(content)-5) {
		t.Errorf("hash: %+v, %v", d, err)
	}
	b.must(os.WriteFile(b.in("f"), []byte("other"), 0o644))
	_, _, err = b.piece(wire.TransferRead{Path: "f", Length: 5, Version: version})
	want(t, err, wire.SourceChanged)
	for name, req := range map[string]wire.TransferRead{
		"negative offset": {Path: "f", Offset: -1}, "negative length": {Path: "f", Length: -1},
		"a large": {Path: "f", Length: wire.TransferPiece + 1}, "overflow": {Path: "f", Offset: 1<<63 - 1, Length: 5},
	} {
		if _, _, err := b.piece(req); wire.CodeOf(err) != wire.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err = b.piece(wire.TransferRead{Path: "../outside/secret", Length: 5})
	want(t, err, wire.PathOutsideAllowedRoot)
	_, _, err = b.piece(wire.TransferRead{Path: ".", Length: 5})
	want(t, err, wire.InternalError, "is_a_directory")
	_, _, err = b.piece(wire.TransferRead{Path: "none", Length: 5})
	want(t, err, wire.PathNotFound)
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, _, err := b.Piece(ended, wire.TransferRead{Path: "f", Length: 5}); err == nil {
		t.Error("read although nobody wants it")
	}
}

func TestEntries(t *testing.T) {
	b := newBench(t)
	b.put("d/file", "12345")
	b.link("file", "d/link")
	b.link(b.out, "d/out")
	b.mkdir("d/dir")
	b.must(unix.Mkfifo(b.in("d/fifo"), 0o600))
	b.put("d/"+tempName(), "")
	b.put("d/"+partName(fmt.Sprintf("%032x", 7)), "")
	b.put("d/\xff", "")
	when := time.Unix(1500000000, 1)
	b.must(os.Chtimes(b.in("d/file"), when, when))
	all, _, err := b.Entries(b.ctx, wire.TransferList{Path: "d"})
	if err != nil || all.More {
		t.Fatal(all.More, err)
	}
	var got []string
	for _, e := range all.Entries {
		got = append(got, e.Name+" "+e.Kind+" "+e.Target)
		if e.Name == "file" && (e.Size != 5 || e.Mode != "0644" || e.MTimeNS != when.UnixNano()) {
			t.Errorf("%+v", e)
		}
	}
	if names := []string{"dir directory ", "fifo other ", "file file ", "link link file", "out link " + b.out, "\uFFFD file "}; !slices.Equal(got, names) {
		t.Errorf("%q", got)
	}
	_, _, err = b.Entries(b.ctx, wire.TransferList{Path: "d/file"})
	want(t, err, wire.InternalError, "not_a_directory")
	_, _, err = b.Entries(b.ctx, wire.TransferList{Path: "d/out"})
	want(t, err, wire.PathOutsideAllowedRoot)
}

// A directory of any size comes page by page, each entry once.
func TestEntriesPages(t *testing.T) {
	b := newBench(t)
	const n = 5*wire.MaxListEntries + 3
	for i := range n {
		b.put(fmt.Sprintf("d/%05d", i*7919%n), "")
	}
	after, next := "", 0
	for more := true; more; {
		page, _, err := b.Entries(b.ctx, wire.TransferList{Path: "d", After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			if after = e.Name; after != fmt.Sprintf("%05d", next) {
				t.Fatalf("%s, want %05d", after, next)
			}
			next++
		}
		more = page.More
	}
	if next != n {
		t.Errorf("%d of %d entries", next, n)
	}
}

func TestMake(t *testing.T) {
	b := newBench(t)
	b.put("f", "x")
	b.mkdir("there")
	make := func(req wire.TransferMake) error { _, err := b.Make(b.ctx, req); return err }
	when := time.Unix(1400000000, 5)
	dir := wire.TransferMake{Path: "a/b/c", Kind: wire.TransferDirectory, Mode: ptr("0750"), MTimeNS: ptr(when.UnixNano())}
	want(t, make(dir), wire.PathNotFound)
	dir.CreateParents = true
	for range 2 {
		b.must(make(dir))
		info := must(os.Stat(b.in("a/b/c")))
		if info.Mode() != 0o750|os.ModeDir || !info.ModTime().Equal(when) {
			t.Errorf("%v %v", info.Mode(), info.ModTime())
		}
	}
	was := must(os.Stat(b.dir)).Mode()
	b.must(make(wire.TransferMake{Path: ".", Kind: wire.TransferDirectory, Mode: ptr("0700")}))
	if now := must(os.Stat(b.dir)).Mode(); now != was {
		t.Errorf("the root's mode is %v", now)
	}
	want(t, make(wire.TransferMake{Path: "f", Kind: wire.TransferDirectory}), wire.PathExists)

	link := func(path, target string) error {
		return make(wire.TransferMake{Path: path, Kind: wire.TransferLink, Target: target, MTimeNS: ptr(when.UnixNano())})
	}
	for path, target := range map[string]string{"l": "f", "there/up": "../f", "dangling": "nowhere/yet", "abs": b.dir + "/f", "a/b/l": "c/../../../f"} {
		for range 2 {
			if err := link(path, target); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if got, _ := os.Readlink(b.in(path)); got != target {
				t.Errorf("%s leads to %q", path, got)
			}
		}
	}
	b.must(link("l", "there"))
	if got, _ := os.Readlink(b.in("l")); got != "there" {
		t.Errorf("l leads to %q", got)
	}
	for path, target := range map[string]string{"e1": "../outside/secret", "e2": b.out, "there/e3": "../../outside", "e4": "/etc/passwd", "e5": "l/../../outside"} {
		if err := link(path, target); wire.CodeOf(err) != wire.PathOutsideAllowedRoot {
			t.Errorf("%s to %s: %v", path, target, err)
		}
		b.gone(path)
	}
	want(t, link("f", "there"), wire.PathExists)
	want(t, link("x", ""), wire.InvalidArgument)
	want(t, make(wire.TransferMake{Path: "x", Kind: "device"}), wire.InvalidArgument)
	want(t, make(wire.TransferMake{Path: "../outside/d", Kind: wire.TransferDirectory}), wire.PathOutsideAllowedRoot)
	b.noTemps()
	b.untouched()
}
