package files

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// names lists and returns the paths relative to the root.
func (b *bench) names(req wire.FileList) ([]string, bool) {
	b.t.Helper()
	got, trace, err := b.List(b.ctx, req)
	b.must(err)
	names := []string{}
	for _, e := range got.Entries {
		names = append(names, strings.TrimPrefix(e.Path, b.dir+"/"))
	}
	if trace.Entries != len(names) {
		b.t.Errorf("trace %+v of %d entries", trace, len(names))
	}
	return names, got.Truncated
}

func TestList(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"b.csv", "a/x.csv", "a/.hid/y.csv", "a/z", "a-b", "a.txt", ".dot", ".git/config.csv", "B", "é"} {
		b.put(path, path)
	}
	b.mkdir("empty")
	b.link("a", "linkdir")
	b.link("b.csv", "linkfile")
	b.link(b.out, "escape")
	b.link(b.out+"/secret", "escapefile")
	b.link("nowhere", "dangling")
	glob := func(s string) *string { return &s }
	most := func(n int) *int { return &n }

	flat := []string{"B", "a", "a-b", "a.txt", "b.csv", "dangling", "empty", "escape", "escapefile", "linkdir", "linkfile", "é"}
	deep := []string{"B", "a", "a-b", "a.txt", "a/x.csv", "a/z", "b.csv", "dangling", "empty", "escape", "escapefile", "linkdir", "linkfile", "é"}
	all := []string{".dot", ".git", ".git/config.csv", "B", "a", "a-b", "a.txt", "a/.hid", "a/.hid/y.csv", "a/x.csv", "a/z",
		"b.csv", "dangling", "empty", "escape", "escapefile", "linkdir", "linkfile", "é"}
	cases := []struct {
		name      string
		req       wire.FileList
		want      []string
		truncated bool
	}{
		{"flat", wire.FileList{Path: "."}, flat, false},
		{"absolute", wire.FileList{Path: b.dir}, flat, false},
		{"recursive", wire.FileList{Path: ".", Recursive: true}, deep, false},
		{"hidden too", wire.FileList{Path: ".", Recursive: true, IncludeHidden: true}, all, false},
		{"glob", wire.FileList{Path: ".", Glob: glob("*.csv")}, []string{"b.csv"}, false},
		{"glob recursive", wire.FileList{Path: ".", Recursive: true, Glob: glob("*.csv")}, []string{"a/x.csv", "b.csv"}, false},
		{"glob of Python", wire.FileList{Path: ".", Glob: glob("[!a-z]*")}, []string{"B", "é"}, false},
		{"glob, nothing", wire.FileList{Path: ".", Glob: glob("[")}, []string{}, false},
		{"empty", wire.FileList{Path: "empty"}, []string{}, false},
		{"through a link", wire.FileList{Path: "linkdir"}, []string{"a/x.csv", "a/z"}, false},
		{"some", wire.FileList{Path: ".", MaxEntries: most(3)}, flat[:3], true},
		{"all but one", wire.FileList{Path: ".", MaxEntries: most(11)}, flat[:11], true},
		{"exactly all", wire.FileList{Path: ".", MaxEntries: most(12)}, flat, false},
		{"one for none", wire.FileList{Path: ".", MaxEntries: most(0)}, flat[:1], true},
		{"recursive some", wire.FileList{Path: ".", Recursive: true, MaxEntries: most(5)}, deep[:5], true},
		{"recursive exactly", wire.FileList{Path: ".", Recursive: true, MaxEntries: most(14)}, deep, false},
		{"glob exactly", wire.FileList{Path: ".", Recursive: true, Glob: glob("*.csv"), MaxEntries: most(2)}, []string{"a/x.csv", "b.csv"}, false},
	}
	for _, c := range cases {
		got, truncated := b.names(c.req)
		if !slices.Equal(got, c.want) || truncated != c.truncated {
			t.Errorf("%s: %q, truncated %t; want %q, %t", c.name, got, truncated, c.want, c.truncated)
		}
	}

	got, _, err := b.List(b.ctx, wire.FileList{Path: "."})
	b.must(err)
	for _, e := range got.Entries {
		kind := fmt.Sprintf("%t %t %t", e.IsFile, e.IsDir, e.IsSymlink)
		wantKind := map[string]string{
			"a": "false true false", "empty": "false true false", "linkdir": "false true true", "linkfile": "true false true",
			"escape": "false false true", "escapefile": "false false true", "dangling": "false false true",
		}[e.Name]
		if wantKind == "" {
			wantKind = "true false false"
		}
		if kind != wantKind {
			t.Errorf("%s: file, dir, link %s; want %s", e.Name, kind, wantKind)
		}
		fi, err := os.Lstat(b.in(e.Name))
		if err != nil || e.SizeBytes != fi.Size() || int64(e.MTime) != fi.ModTime().Unix() {
			t.Errorf("%s: size %d, time %f", e.Name, e.SizeBytes, e.MTime)
		}
	}

	_, _, err = b.List(b.ctx, wire.FileList{Path: "b.csv"})
	want(t, err, wire.InternalError, "not_a_directory")
	_, _, err = b.List(b.ctx, wire.FileList{Path: "missing"})
	want(t, err, wire.PathNotFound)
	_, _, err = b.List(b.ctx, wire.FileList{Path: "escape"})
	want(t, err, wire.PathOutsideAllowedRoot)
	if list, _, _ := b.List(b.ctx, wire.FileList{Path: "empty"}); js(list) != `{"entries":[],"truncated":false}` {
		t.Errorf("an empty list is %s", js(list))
	}
}

// TestListOrder compares a large tree with a plain sort of all its paths, whole
// and cut at every length.
func TestListOrder(t *testing.T) {
	b := newBench(t)
	var all []string
	for _, d := range []string{"", "p/", "p/q/", "p-q/", "p.q/", "p0/"} {
		for i := range 12 {
			all = append(all, fmt.Sprintf("%sf%d", d, i*7%12))
		}
	}
	for _, path := range all {
		b.put(path, "")
	}
	all = append(all, "p", "p/q", "p-q", "p.q", "p0")
	slices.Sort(all)
	for n := 1; n <= len(all); n++ {
		got, truncated := b.names(wire.FileList{Path: ".", Recursive: true, MaxEntries: &n})
		if !slices.Equal(got, all[:n]) || truncated != (n < len(all)) {
			t.Fatalf("first %d: %q, truncated %t", n, got, truncated)
		}
	}
	// The same with windows so small that each directory takes many passes.
	fd, err := openDir(b.self.fd, ".")
	b.must(err)
	dir := handle{fd: fd, id: b.self.id, owned: true}
	defer dir.close()
	for size := 1; size < 9; size++ {
		l := newListing(b.ctx, b.Root, wire.FileList{Recursive: true})
		l.held = size
		list, err := l.run(&dir, nil, b.Path(), view{})
		b.must(err)
		var got []string
		for _, e := range list.Entries {
			got = append(got, strings.TrimPrefix(e.Path, b.dir+"/"))
		}
		if !slices.Equal(got, all) || list.Truncated {
			t.Errorf("window %d: %q", size, got)
		}
		if items, _, err := l.window(&dir, view{}, "", size); err != nil || len(items) > size {
			t.Errorf("%d items in a window of %d, %v", len(items), size, err)
		}
	}
}

func TestListHuge(t *testing.T) {
	b := newBench(t)
	b.mkdir("d")
	for i := range 3000 {
		b.must(os.WriteFile(b.in(fmt.Sprintf("d/%04d", i)), nil, 0o644))
	}
	for _, most := range []*int{nil, new(1 << 30)} {
		got, truncated := b.names(wire.FileList{Path: "d", MaxEntries: most})
		if len(got) != wire.MaxListEntries || !truncated || got[0] != "d/0000" || got[999] != "d/0999" {
			t.Errorf("%d entries, truncated %t, from %s", len(got), truncated, got[0])
		}
	}
}

// TestListFits keeps an answer in a frame when names are as long as can be and
// each of their characters takes six bytes of JSON.
func TestListFits(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("\x01", 255)
	deep := strings.Repeat(strings.Repeat("\x02", 250)+"/", 14)
	b.must(b.writeDeep(deep+"f", ""))
	p, err := b.resolve(b.ctx, asked{key: "path", path: deep}, true)
	b.must(err)
	defer p.close()
	dir, err := b.pinPlace(&p)
	b.must(err)
	for i := range 700 {
		b.must(createTemp(dir, fmt.Sprintf("%s%03d", long[:252], i), nil, false))
	}
	unix.Close(dir)
	list, _, err := b.List(b.ctx, wire.FileList{Path: deep})
	b.must(err)
	out, err := json.Marshal(list)
	b.must(err)
	if len(out) > maxListBytes || len(out) < maxListBytes/2 || !list.Truncated {
		t.Errorf("%d bytes of JSON, %d entries, truncated %t", len(out), len(list.Entries), list.Truncated)
	}
	b.must(b.delete(strings.Repeat("\x02", 250), true))
}

func TestListDepth(t *testing.T) {
	b := newBench(t)
	b.must(b.writeDeep(strings.Repeat("d/", maxListDepth+5)+"f", ""))
	got, truncated := b.names(wire.FileList{Path: ".", Recursive: true})
	if len(got) != maxListDepth || !truncated {
		t.Errorf("%d entries, truncated %t", len(got), truncated)
	}
}

func TestListUnreadable(t *testing.T) {
	b := newBench(t)
	b.put("shut/f", "x")
	b.put("open/f", "x")
	b.must(os.Chmod(b.base, 0o755))
	b.must(os.Chmod(b.in("shut"), 0o700))
	asUser(t, 12001, 12001, func() {
		got, truncated := b.names(wire.FileList{Path: ".", Recursive: true})
		if !slices.Equal(got, []string{"open", "open/f", "shut"}) || truncated {
			t.Errorf("%q, truncated %t", got, truncated)
		}
		_, _, err := b.List(b.ctx, wire.FileList{Path: "shut"})
		want(t, err, wire.PathNotAllowed)
		_, err = b.read("shut/f")
		want(t, err, wire.PathNotAllowed)
	})
}

func BenchmarkList1000(b *testing.B) {
	x := newBench(b)
	for i := range 1000 {
		x.must(os.WriteFile(x.in(fmt.Sprintf("%04d", i)), nil, 0o644))
	}
	for b.Loop() {
		if _, _, err := x.List(x.ctx, wire.FileList{Path: "."}); err != nil {
			b.Fatal(err)
		}
	}
}
