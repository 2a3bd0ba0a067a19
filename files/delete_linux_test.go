package files

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"farhand/wire"
)

func TestDelete(t *testing.T) {
	b := newBench(t)
	b.put("f", "x")
	b.put("d/e/f", "x")
	b.mkdir("empty")
	b.must(b.delete("f", false))
	b.must(b.delete("empty", false))
	b.gone("f", "empty")
	want(t, b.delete("f", false), wire.PathNotFound)
	trace, err := b.Delete(b.ctx, wire.FileDelete{Path: "f", MissingOK: true})
	if err != nil || trace.Entries != 0 || trace.Path != b.in("f") {
		t.Errorf("missing_ok: %+v, %v", trace, err)
	}
	_, err = b.Delete(b.ctx, wire.FileDelete{Path: "no/such", MissingOK: true})
	b.must(err)
	_, err = b.Delete(b.ctx, wire.FileDelete{Path: "../f", MissingOK: true})
	want(t, err, wire.PathOutsideAllowedRoot)

	want(t, b.delete("d", false), wire.PathNotEmpty)
	b.has("d/e/f", "x")
	trace, err = b.Delete(b.ctx, wire.FileDelete{Path: "d", Recursive: true})
	if err != nil || trace.Entries != 3 {
		t.Errorf("recursive: %+v, %v", trace, err)
	}
	b.gone("d")
	b.put("f", "x")
	b.must(b.delete("f", true)) // recursive means nothing for a file
	b.gone("f")
}

// TestDeleteLinks deletes links and never what they lead to.
func TestDeleteLinks(t *testing.T) {
	b := newBench(t)
	b.put("d/f", "x")
	b.link("d/f", "tofile")
	b.link("d", "todir")
	b.link("nowhere", "dangling")
	b.link(b.out, "escape")
	b.link(b.out+"/secret", "escapefile")
	b.link("loop", "loop")
	for _, path := range []string{"tofile", "todir/", "dangling", "escape", "escapefile", "loop"} {
		b.must(b.delete(path, true))
		b.gone(strings.TrimSuffix(path, "/"))
	}
	b.has("d/f", "x")
	b.untouched()

	b.link(b.out, "d/escape")
	b.link("../..", "d/up")
	b.link(b.out, "elsewhere")
	want(t, b.delete("elsewhere/secret", false), wire.PathOutsideAllowedRoot)
	b.must(b.delete("d", true))
	b.gone("d")
	b.untouched()
}

func TestDeleteRoot(t *testing.T) {
	b := newBench(t)
	b.put("d/f", "x")
	b.link(".", "self")
	b.link("..", "d/up")
	for _, path := range []string{".", b.dir, "d/..", "../root", "/../" + b.dir} {
		want(t, b.delete(path, true), wire.PathOutsideAllowedRoot, "is_root")
		want(t, b.move(path, "d/x", true), wire.PathOutsideAllowedRoot, "is_root")
		want(t, b.move("d/f", path, true), wire.PathOutsideAllowedRoot, "is_root")
	}
	want(t, b.delete("d/up/..", true), wire.PathOutsideAllowedRoot)
	b.has("d/f", "x")
	b.must(b.delete("self", true)) // that is a link, and goes as one
	b.has("d/f", "x")
}

// TestDeleteLarge removes a tree that is deeper than descriptors may be held and
// wider than names are.
func TestDeleteLarge(t *testing.T) {
	b := newBench(t)
	b.must(b.writeDeep(strings.Repeat("d/", 5*maxHeld)+"f", "x"))
	b.put("d/side/f", "x")
	for i := range 2*namesAtOnce + 5 {
		b.must(os.WriteFile(b.in(fmt.Sprintf("d/d/%d", i)), nil, 0o644))
	}
	trace, err := b.Delete(b.ctx, wire.FileDelete{Path: "d", Recursive: true})
	b.must(err)
	if n := 5*maxHeld + 1 + 2 + 2*namesAtOnce + 5; trace.Entries != n {
		t.Errorf("%d removed, want %d", trace.Entries, n)
	}
	b.gone("d")
	b.noTemps()
}
