package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/pathglob"
	"farhand/wire"
)

// What stands in private files, and what they are called.
const (
	canary     = "canary-content-of-the-file"
	canaryName = "canaryname"
)

// hideout is a bench with something private in it.
type hideout struct {
	*bench
	secrets *Private
}

// newHideout opens a root with these rules, in which "@" is the root's path and "="
// what it lies in.
func newHideout(t testing.TB, rules ...string) *hideout {
	t.Helper()
	h := &hideout{bench: newBench(t)}
	h.secrets = h.rules(rules...)
	h.Root = h.openPrivate(h.dir)
	return h
}

func (h *hideout) rules(texts ...string) *Private {
	h.t.Helper()
	var rules []PrivateRule
	for _, text := range texts {
		text = strings.NewReplacer("@", h.dir, "=", h.base).Replace(text)
		path, options, _ := strings.Cut(text, ";")
		p, err := pathglob.Parse(path, "")
		if err != nil {
			h.t.Fatal(err)
		}
		rules = append(rules, PrivateRule{Pattern: p, Named: strings.Contains(options, "named"), Shown: strings.Contains(options, "shown")})
	}
	p := NewPrivate(rules)
	h.t.Cleanup(func() { p.Close() })
	return p
}

func (h *hideout) openPrivate(path string) *Root {
	h.t.Helper()
	r, err := Open(path, nil, h.secrets)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { r.Close() })
	return r
}

// at is the same with another root and, if there are any, other rules.
func (h *hideout) at(dir string, rules ...string) *hideout {
	h.t.Helper()
	b := *h.bench
	other := &hideout{bench: &b, secrets: h.secrets}
	if len(rules) > 0 {
		other.secrets = h.rules(rules...)
	}
	b.dir, b.Root = dir, other.openPrivate(dir)
	return other
}

// blocked checks that everything that would let out the content of path, or move
// it, is refused, and that no answer has the names.
func (h *hideout) blocked(path string, reasons ...string) {
	h.t.Helper()
	for what, err := range h.tries(path) {
		if wire.CodeOf(err) != wire.PrivacyModeBlocked {
			h.t.Errorf("%s of %s: %v, want it blocked", what, path, err)
			continue
		}
		h.tellsNothing(what+" of "+path, err)
		if reason := wire.AsError(err).Details["reason"]; len(reasons) > 0 && !slices.Contains(reasons, fmt.Sprint(reason)) {
			h.t.Errorf("%s of %s: reason %v", what, path, reason)
		}
	}
}

// tries asks for the content of a path in every way.
func (h *hideout) tries(path string) map[string]error {
	out := make(map[string]error)
	_, trace, err := h.Read(h.ctx, wire.FileRead{Path: path}, big)
	out["read"] = err
	h.tellsNothing("trace of read", trace)
	one := int64(1)
	_, _, out["read of a byte"] = h.Read(h.ctx, wire.FileRead{Path: path, Length: &one, Encoding: wire.EncodingBase64}, big)
	f, _, err := h.OpenFile(h.ctx, path)
	if err == nil {
		f.Close()
	}
	out["open"] = err
	d, told, err := h.OpenDir(h.ctx, path)
	if err == nil {
		d.Close()
	}
	out["directory"] = err
	h.tellsNothing("path of a directory", told)
	piece, trace, err := h.Piece(h.ctx, wire.TransferRead{Path: path, Length: 10})
	if err == nil {
		piece.Release()
	}
	out["piece"] = err
	h.tellsNothing("trace of a piece", trace)
	_, _, out["hash"] = h.Piece(h.ctx, wire.TransferRead{Path: path, Length: 10, HashOnly: true})
	moved, err := h.Move(h.ctx, wire.FileMove{Src: path, Dst: "public/moved"})
	out["move"] = err
	h.tellsNothing("trace of a move", moved)
	return out
}

// tellsNothing checks that neither names nor content stand in something.
func (h *hideout) tellsNothing(what string, v any) {
	h.t.Helper()
	text := fmt.Sprintf("%+v", v)
	if err, ok := v.(error); ok {
		b, _ := json.Marshal(wire.AsError(err))
		text += string(b)
	}
	for _, s := range []string{canary, canaryName} {
		if strings.Contains(strings.ToLower(text), s) {
			h.t.Errorf("%s tells %q: %s", what, s, text)
		}
	}
}

func (h *hideout) names(req wire.FileList) []string {
	h.t.Helper()
	list, trace, err := h.List(h.ctx, req)
	h.must(err)
	h.tellsNothing("trace of a list", trace)
	h.tellsNothing("list", list)
	var names []string
	for _, e := range list.Entries {
		names = append(names, strings.TrimPrefix(e.Path, h.dir+"/"))
		if !strings.HasSuffix(e.Path, "/"+e.Name) {
			h.t.Errorf("%s is called %s", e.Path, e.Name)
		}
	}
	return names
}

func TestPrivateIsBlocked(t *testing.T) {
	h := newHideout(t, "@/private", "@/public/**/*.key")
	h.put("private/"+canaryName, canary)
	h.put("private/deep/er/"+canaryName, canary)
	h.put("public/plain", "plain")
	h.put("public/a/"+canaryName+".key", canary)
	h.put("public/a/b/"+canaryName+".KEY", canary)
	h.link("../private/"+canaryName, "public/in")
	h.link("../private", "public/dir")
	h.link(h.dir+"/private/deep", "public/absolute")
	for _, path := range []string{
		"private/" + canaryName, "private/deep/er/" + canaryName, "private", "private/deep", "./private//" + canaryName,
		h.dir + "/private/" + canaryName, "public/../private/" + canaryName, "private/deep/../" + canaryName,
		"public/dir/" + canaryName, "public/dir/deep/er/../er/" + canaryName,
		"public/a/" + canaryName + ".key", "public/a/b/" + canaryName + ".KEY", "PRIVATE/../private/" + canaryName,
	} {
		h.blocked(path, "private")
	}
	for _, path := range []string{"public/in", "public/absolute/er/" + canaryName} {
		_, err := h.read(path)
		want(t, err, wire.PrivacyModeBlocked, "private")
		h.tellsNothing("a link", err)
	}
	if got, err := h.read("public/plain"); err != nil || got != "plain" {
		t.Errorf("what is public: %q, %v", got, err)
	}
	// What isn't there is as private as what is.
	for _, path := range []string{"private/" + canaryName + "2", "public/" + canaryName + ".key/x"} {
		_, err := h.read(path)
		want(t, err, wire.PathNotFound)
		h.tellsNothing("what isn't there", err)
		s, trace, err := h.Stat(h.ctx, wire.FileStat{Path: path})
		h.must(err)
		h.tellsNothing("stat of what isn't there", fmt.Sprint(*s.Path, trace))
	}
	h.has("private/"+canaryName, canary)
}

func TestPrivateNames(t *testing.T) {
	h := newHideout(t, "@/private", "@/public/*.key", "@/open;names=shown", "@/one/"+canaryName)
	h.put("private/"+canaryName, canary)
	h.put("private/"+canaryName+"dir/"+canaryName+".csv", canary)
	h.put("private/."+canaryName, canary)
	h.put("public/"+canaryName+".key", canary)
	h.put("public/plain", "")
	h.put("open/known", canary)
	h.put("one/"+canaryName, canary)

	top := h.names(wire.FileList{Path: "."})
	if want := []string{"one", "open", "private", "public"}; !slices.Equal(top, want) {
		t.Errorf("at the top %v, want %v", top, want)
	}
	all := h.names(wire.FileList{Path: ".", Recursive: true, IncludeHidden: true})
	if !slices.IsSorted(all) {
		t.Errorf("not in order: %v", all)
	}
	aliases := 0
	for _, path := range all {
		if isAlias(path[strings.LastIndexByte(path, '/')+1:]) {
			aliases++
		}
	}
	if len(all) != 12 || aliases != 6 || !slices.Contains(all, "open/known") || !slices.Contains(all, "public/plain") {
		t.Errorf("%d of %d are aliases: %v", aliases, len(all), all)
	}
	// An alias is as good as the name, at every depth, and tells where it leads.
	for _, path := range all {
		s, trace, err := h.Stat(h.ctx, wire.FileStat{Path: path})
		h.must(err)
		if !s.Exists || *s.Path != h.dir+"/"+path || trace.Path != *s.Path {
			t.Errorf("%s is %s (%t)", path, *s.Path, s.Exists)
		}
		if strings.HasPrefix(path, "private/") {
			h.blocked(path)
		}
	}
	s, err := h.stat("private/" + canaryName + "dir/" + canaryName + ".csv")
	h.must(err)
	if !slices.Contains(all, strings.TrimPrefix(*s.Path, h.dir+"/")) || *s.MIMEType != "text/csv" || *s.SizeBytes != int64(len(canary)) {
		t.Errorf("by its name it is %s, %s, %d", *s.Path, *s.MIMEType, *s.SizeBytes)
	}
	if again := h.names(wire.FileList{Path: ".", Recursive: true, IncludeHidden: true}); !slices.Equal(again, all) {
		t.Errorf("another time %v", again)
	}
	// Writing keeps the alias; another Private has others.
	was := *s.Path
	h.must(h.write(was, "new"))
	h.has("private/"+canaryName+"dir/"+canaryName+".csv", "new")
	if s, err := h.stat(was); err != nil || !s.Exists || *s.Path != was {
		t.Errorf("after a write %v, %v", s.Path, err)
	}
	other := h.at(h.dir, "@/private")
	if s, err := other.stat(was); err != nil || s.Exists {
		t.Errorf("an alias of another start leads to %v (%v)", s, err)
	}
}

// TestGlobIsNoOracle: a pattern finds out nothing about names that aren't told, nor
// does the order of a list, nor a name that can't be spelled.
func TestGlobIsNoOracle(t *testing.T) {
	h := newHideout(t, "@/private", "@/public/*.key")
	for i := range 20 {
		h.put(fmt.Sprintf("private/%s%02d", canaryName, i), canary)
	}
	h.put("public/"+canaryName+".key", canary)
	h.put("private/caf\xe9", canary)
	for _, dir := range []string{"private", "public", "."} {
		for _, glob := range []string{canaryName + "*", "c*", "*0*1*", "*.key", "caf?", "[!p]*"} {
			if got := h.names(wire.FileList{Path: dir, Recursive: true, Glob: &glob}); len(got) > 0 {
				for _, path := range got {
					if base := path[strings.LastIndexByte(path, '/')+1:]; !isAlias(base) {
						t.Errorf("%s in %s found %v", glob, dir, got)
					}
				}
			}
		}
	}
	glob := "private-*"
	if got := h.names(wire.FileList{Path: "private", Glob: &glob}); len(got) != 21 || !slices.IsSorted(got) {
		t.Errorf("by their aliases %d: %v", len(got), got)
	}
	var real []string
	for _, path := range h.names(wire.FileList{Path: "private"}) {
		var names []string
		h.must(filepathNames(h.in("private"), &names))
		for _, name := range names {
			if h.secrets.alias(ident{h.dev("private"), h.ino("private")}, name) == strings.TrimPrefix(path, "private/") {
				real = append(real, name)
			}
		}
	}
	if len(real) != 21 || slices.IsSorted(real) {
		t.Errorf("the order is that of the names: %q", real)
	}
	s, err := h.stat("private/caf\ufffd")
	h.must(err)
	if s.Exists {
		t.Error("a name is found by what stands for any byte")
	}
	// Windows of a large directory are in that order, too.
	l := newListing(h.ctx, h.Root, wire.FileList{Path: "private"})
	l.held = 4
	p, err := h.resolve(h.ctx, h.ask("path", "private"), true)
	h.must(err)
	defer p.close()
	fd, err := h.reopen(&p, unix.O_RDONLY|unix.O_DIRECTORY)
	h.must(err)
	dir := handle{fd: fd, id: identOf(&p.st), owned: true}
	defer dir.close()
	answer, err := l.run(&dir, []string{"private"}, p.path(h.Root), p.into(fd))
	h.must(err)
	if len(answer.Entries) != 21 || !slices.IsSortedFunc(answer.Entries, func(a, b wire.FileEntry) int { return strings.Compare(a.Path, b.Path) }) {
		t.Errorf("by windows %d: %v", len(answer.Entries), answer.Entries)
	}
}

func filepathNames(dir string, names *[]string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		*names = append(*names, e.Name())
	}
	return err
}

func (h *hideout) dev(path string) uint64 {
	h.t.Helper()
	var st unix.Stat_t
	h.must(unix.Lstat(h.in(path), &st))
	return uint64(st.Dev)
}

// TestPrivateHardLinks: a file is private by any of its names, and by none of them
// it can be made public.
func TestPrivateHardLinks(t *testing.T) {
	h := newHideout(t, "@/private", "@/public/*.key")
	h.put("private/deep/"+canaryName, canary)
	h.put("public/"+canaryName+".key", canary)
	h.put("public/other", "other")
	h.must(os.Link(h.in("public/other"), h.in("public/other2")))
	h.must(os.Link(h.in("private/deep/"+canaryName), h.in("public/"+canaryName+"link")))
	h.must(os.Link(h.in("public/"+canaryName+".key"), h.in("public/"+canaryName+"link2")))
	for _, path := range []string{"public/" + canaryName + "link", "public/" + canaryName + "link2"} {
		h.blocked(path, "private")
	}
	h.names(wire.FileList{Path: ".", Recursive: true})
	h.entries("public")
	if got, err := h.read("public/other2"); err != nil || got != "other" {
		t.Errorf("a public file with two names: %q, %v", got, err)
	}
	for _, path := range []string{"private/deep/" + canaryName, "public/" + canaryName + "link"} {
		err := h.delete(path, false)
		want(t, err, wire.PrivacyModeBlocked, "hard_links")
		h.tellsNothing("a refusal", err)
		err = h.write(path, "x")
		want(t, err, wire.PrivacyModeBlocked, "hard_links")
	}
	h.has("private/deep/"+canaryName, canary)
	// More than can be looked through is private.
	p, err := h.resolve(h.ctx, h.ask("path", "public/other"), true)
	h.must(err)
	defer p.close()
	s := &linkSearch{ctx: h.ctx, t: p.spot.t, found: &linked{files: map[ident]int{}}, until: time.Now(), seen: linkedEntries}
	h.must(s.run())
	if !s.found.all {
		t.Error("a search beyond its bounds says that it is complete")
	}
}

// TestPrivateLinkComesAndGoes: a private file is known by its other name also if it
// has none at the moment in which all that is private is looked through.
func TestPrivateLinkComesAndGoes(t *testing.T) {
	h := newHideout(t, "@/private")
	h.put("private/"+canaryName, canary)
	h.mkdir("public")
	link := func() { h.must(os.Link(h.in("private/"+canaryName), h.in("public/link"))) }
	link()
	w := walk{root: h.Root, ctx: h.ctx, asked: h.ask("path", "public/link"), follow: true, top: h.top()}
	h.must(w.begin())
	p, err := w.run() // with two names
	h.must(err)
	defer p.close()
	h.must(os.Remove(h.in("public/link")))
	var is verdict
	h.must(w.spot.byLinks(h.ctx, &is, &p.st, p.dir.fd, p.name)) // with one
	link()                                                      // so that it would be opened with two again
	if !is.private() {
		t.Error("it is public")
	}
}

// A private file that gets another name while it loses its own, when it is too late
// for its number of names to tell, is private by that name, and gets its own back.
func TestPrivateLinkAtTheLastMoment(t *testing.T) {
	for what, change := range map[string]func(h *hideout) error{
		"delete": func(h *hideout) error { return h.delete("private/"+canaryName, false) },
		"write":  func(h *hideout) error { return h.write("private/"+canaryName, "x") },
	} {
		t.Run(what, func(t *testing.T) {
			h := newHideout(t, "@/private")
			h.put("private/"+canaryName, canary)
			h.mkdir("public")
			link := func() {
				h.must(os.Link(h.in("private/"+canaryName), h.in("public/link")))
			}
			h.secrets.losing = link
			err := change(h)
			want(t, err, wire.PrivacyModeBlocked, "hard_links")
			h.tellsNothing("a refusal", err)
			h.has("private/"+canaryName, canary)
			h.blocked("public/link", "private")

			// Where it can't have its name back it is private by what it is.
			h.must(os.Remove(h.in("private/" + canaryName)))
			h.blocked("public/link", "private")
			want(t, h.move("public/link", "public/elsewhere", false), wire.PrivacyModeBlocked, "private")
			h.noTemps()

			// That isn't so of another file, which may have its inode.
			h.must(os.Remove(h.in("public/link")))
			h.secrets.losing = nil
			h.put("public/new", "new")
			if got, err := h.read("public/new"); err != nil || got != "new" {
				t.Errorf("a new file: %q, %v", got, err)
			}
			h.put("private/"+canaryName, canary)
			h.must(change(h))
			h.put("public/newer", "newer")
			if got, err := h.read("public/newer"); err != nil || got != "newer" {
				t.Errorf("a file after another was lost: %q, %v", got, err)
			}
			if n := len(h.secrets.leaving); n > 1 {
				t.Errorf("%d files are remembered", n)
			}
		})
	}
}

// A file that a rule names is known where it is moved along with what holds it, or
// kept by an editor, while what has its place is private, too.
func TestPrivateFileByIdentity(t *testing.T) {
	h := newHideout(t, "@/way/deep/"+canaryName, "@/later")
	h.mkdir("way/deep")
	h.put("way/deep/"+canaryName, canary)
	h.blocked("way/deep/" + canaryName)
	h.must(os.Rename(h.in("way"), h.in("elsewhere"))) // not by us
	h.blocked("elsewhere/deep/"+canaryName, "private")
	h.names(wire.FileList{Path: "elsewhere", Recursive: true})
	want(t, h.move("elsewhere/deep/"+canaryName, "public", false), wire.PrivacyModeBlocked, "private")
	h.must(h.delete("elsewhere/deep/"+canaryName, false)) // as in its own place
	h.put("elsewhere/new", "new")
	if got, err := h.read("elsewhere/new"); err != nil || got != "new" {
		t.Errorf("a file after it: %q, %v", got, err)
	}
	h.put("later", canary) // after the start
	h.blocked("later")
	h.must(os.Rename(h.in("later"), h.in("later~")))
	h.put("later", canary)
	h.blocked("later")
	h.blocked("later~", "private")
	for i := range 2 * maxNamed { // what is remembered has bounds
		h.must(os.Remove(h.in("later")))
		h.put("later", fmt.Sprint(i))
		want(t, readOf(h, "later"), wire.PrivacyModeBlocked, "private")
	}
	if n := len(h.secrets.named); n > maxNamed {
		t.Errorf("%d files are remembered", n)
	}
}

// entries is TRANSFER_LIST of a directory, which tells nothing.
func (h *hideout) entries(path string) []wire.TransferEntry {
	h.t.Helper()
	answer, trace, err := h.Entries(h.ctx, wire.TransferList{Path: path})
	h.must(err)
	h.tellsNothing("entries", answer)
	h.tellsNothing("trace of entries", trace)
	return answer.Entries
}

func TestPrivateTransfers(t *testing.T) {
	h := newHideout(t, "@/private", "@/public/*.key", "=/elsewhere")
	h.put("private/"+canaryName, canary)
	h.put("public/"+canaryName+".key", canary)
	h.put("public/plain", "")
	h.mkdir(h.base + "/elsewhere")
	defer os.RemoveAll(h.base + "/elsewhere")
	for i, target := range []string{
		"../private/" + canaryName, h.dir + "/private/" + canaryName + "absent", "../private/" + canaryName + "absent/../../plain",
		h.base + "/elsewhere/" + canaryName, "plain",
	} {
		h.link(target, fmt.Sprintf("public/l%d", i))
	}
	told := 0
	for _, e := range h.entries("public") {
		if e.Target != "" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d targets are told, want that of the link to something public", told)
	}
	_, _, err := h.Entries(h.ctx, wire.TransferList{Path: "private"})
	want(t, err, wire.PrivacyModeBlocked, "private")

	u, err := NewUploads(UploadOptions{Dir: t.TempDir()})
	h.must(err)
	defer u.Close()
	by := Uploader{Session: "s", Hold: func() func() { return func() {} }}
	size := int64(1)
	for _, path := range []string{"private/" + canaryName, "private/new", "public/new.key", "public/l0", "private/a/b"} {
		_, trace, err := u.Open(h.ctx, h.Root, by, wire.TransferOpen{Path: path, Size: &size, CreateParents: true}, nil)
		want(t, err, wire.PrivacyModeBlocked, "private")
		h.tellsNothing("an upload", fmt.Sprint(err, trace))
		zero := int64(0)
		_, err = h.Make(h.ctx, wire.TransferMake{Path: path, Kind: wire.TransferDirectory, CreateParents: true, MTimeNS: &zero})
		want(t, err, wire.PrivacyModeBlocked)
	}
	for _, target := range []string{h.dir + "/private/" + canaryName, "../private", "../private/x/../../public"} {
		_, err = h.Make(h.ctx, wire.TransferMake{Path: "public/made", Kind: wire.TransferLink, Target: target})
		want(t, err, wire.PrivacyModeBlocked, "private")
	}
	// What becomes private while it is on its way isn't put there.
	opened, _, err := u.Open(h.ctx, h.Root, by, wire.TransferOpen{Path: "later/x", Size: &size, CreateParents: true}, nil)
	h.must(err)
	h.must(u.Write(h.ctx, "s", wire.TransferChunk{Transfer: opened.Transfer}, []byte("x")))
	_, _, err = u.Commit(h.ctx, h.at(h.dir, "@/later").Root, "s", wire.TransferCommit{Transfer: opened.Transfer, SHA256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"})
	want(t, err, wire.PrivacyModeBlocked, "private")
}

// TestPrivateStays: what is private is neither moved, nor what holds it, nor a link
// on the way to it.
func TestPrivateStays(t *testing.T) {
	h := newHideout(t, "@/a/b/private", "@/way/to/it", "@/files/*.key", "@/gone/private")
	h.put("a/b/private/"+canaryName, canary)
	h.put("a/b/c", "")
	h.put("real/to/it/"+canaryName, canary)
	h.link("real", "way")
	h.put("files/plain", "plain")
	h.put("other/x", "other")
	h.put("other/y.key", "not in files")
	h.mkdir("gone")
	for _, src := range []string{"a", "a/b", "way", "real", "real/to", "files", "gone"} {
		err := h.move(src, "moved", false)
		want(t, err, wire.PrivacyModeBlocked, "holds_private")
		err = h.move("other", src, true)
		want(t, err, wire.PrivacyModeBlocked, "holds_private")
		err = h.delete(src, true)
		want(t, err, wire.PrivacyModeBlocked, "holds_private")
	}
	for _, dir := range []string{"a/b/private", "real/to/it", "way/to/it"} {
		want(t, h.delete(dir, true), wire.PrivacyModeBlocked, "private")
		want(t, h.move(dir, "moved", false), wire.PrivacyModeBlocked, "private")
		want(t, h.move("other/x", dir+"/x", false), wire.PrivacyModeBlocked, "private")
	}
	want(t, h.delete("files", true), wire.PrivacyModeBlocked, "holds_private")
	want(t, h.move("other/x", "files/x.key", false), wire.PrivacyModeBlocked, "private")
	_, err := h.Make(h.ctx, wire.TransferMake{Path: "way", Kind: wire.TransferLink, Target: "other"})
	want(t, err, wire.PrivacyModeBlocked, "holds_private")
	want(t, h.delete("gone", false), wire.PrivacyModeBlocked, "holds_private") // or a link could take its place
	h.must(h.move("other/x", "files/x", false))
	h.must(h.move("files/x", "other/x", false))
	h.must(h.move("other", "elsewhere", false))
	h.must(h.delete("elsewhere", true))
	// Nor does a link come on the way, nor a mode that lets others in.
	h.put("plain/x", "")
	h.link("x", "plain/l")
	for _, path := range []string{"files/sub/l", "absent"} {
		strict := h.at(h.dir, "@/files/**/*.key", "@/absent/private")
		_, err := strict.Make(h.ctx, wire.TransferMake{Path: path, Kind: wire.TransferLink, Target: h.dir + "/plain", CreateParents: true})
		want(t, err, wire.PrivacyModeBlocked, "holds_private")
		want(t, strict.move("plain/l", strings.TrimSuffix(path, "/sub/l")+"l", false), "")
		h.must(os.Rename(h.in(strings.TrimSuffix(path, "/sub/l")+"l"), h.in("plain/l")))
	}
	want(t, h.at(h.dir, "@/files/**/*.key").move("plain/l", "files/l", false), wire.PrivacyModeBlocked, "holds_private")
	open := "0777"
	_, err = h.Make(h.ctx, wire.TransferMake{Path: "a/b", Kind: wire.TransferDirectory, Mode: &open})
	want(t, err, wire.PrivacyModeBlocked, "holds_private")
	_, err = h.Make(h.ctx, wire.TransferMake{Path: "plain", Kind: wire.TransferDirectory, Mode: &open})
	h.must(err)
	// Single private files may be written and deleted.
	h.must(h.write("a/b/private/"+canaryName, "new"))
	h.must(h.writeDeep("a/b/private/new/er", canary))
	h.must(h.delete("a/b/private/new/er", false))
	h.must(h.delete("a/b/private/"+canaryName, false))
}

// TestPrivateByIdentity: what a rule without wildcards leads to stays private
// wherever it is moved or mounted, and whatever the root is called.
func TestPrivateByIdentity(t *testing.T) {
	h := newHideout(t, "@/private", "@/keys/*.key", "=/outer")
	h.put("private/deep/"+canaryName, canary)
	h.put("keys/"+canaryName+".key", canary)
	h.mkdir("public")
	h.blocked("private/deep/" + canaryName)
	h.must(os.Rename(h.in("private"), h.in("public/renamed"))) // not by us
	h.blocked("public/renamed/deep/"+canaryName, "private")
	h.mkdir("private") // another one of this name
	h.put("private/"+canaryName, canary)
	h.blocked("private/" + canaryName)
	h.blocked("public/renamed/deep/" + canaryName)
	h.names(wire.FileList{Path: "public", Recursive: true})

	h.must(os.Rename(h.in("keys"), h.in("public/keys2")))
	if got, err := h.read("public/keys2/" + canaryName + ".key"); err != nil || got != canary {
		t.Errorf("what a pattern with wildcards no longer fits: %q, %v", got, err)
	}
	h.must(os.Rename(h.in("public/keys2"), h.in("keys")))

	// Nor is it removed with what is replaced, or left over.
	h.put("dir/x", "")
	h.must(os.Rename(h.in("private"), h.in("dir/moved")))
	h.put("other/y", "")
	want(t, h.move("other", "dir", true), wire.PrivacyModeBlocked, "old_content_left")
	h.has("dir/y", "")
	fd, err := openDir(h.self.fd, ".")
	h.must(err)
	top := handle{fd: fd, id: h.self.id, owned: true}
	defer top.close()
	h.must((&sweep{root: h.Root, ctx: h.ctx, before: farFuture(), secret: h.secrets.look()}).dir(&top, 0))
	left, err := filepath.Glob(h.in(tempPrefix + "*/moved"))
	h.must(err)
	if len(left) != 1 {
		t.Fatalf("%d are left", len(left))
	}
	h.must(os.Rename(left[0], h.in("private")))
	h.has("private/"+canaryName, canary)
	h.must(os.RemoveAll(filepath.Dir(left[0])))

	// The root itself is moved into something private, and opened in it.
	h.must(os.Mkdir(h.base+"/outer", 0o755))
	h.put("plain", canary)
	h.must(os.Rename(h.dir, h.base+"/outer/root"))
	h.blocked("plain")
	inside := h.at(h.base + "/outer/root")
	inside.blocked("plain")
	inside.blocked("public/renamed/deep/" + canaryName)
	err = h.secrets.CheckRoot(inside.dir)
	want(t, err, wire.PrivacyModeBlocked, "private")
	h.must(h.secrets.CheckRoot(h.base + "/outer"))
	h.must(os.Rename(h.base+"/outer/root", h.dir))
	h.must(os.Remove(h.base + "/outer"))
}

func TestPrivateMounted(t *testing.T) {
	h := newHideout(t, "@/private", "@/keys/*.key", "@/stick/docs/*.csv")
	h.put("private/deep/"+canaryName, canary)
	h.put("keys/sub/plain", "plain")
	h.put("keys/"+canaryName+".key", canary)
	h.mkdir("public/m1")
	h.mkdir("public/m3")
	h.put("tree/plain", "plain")
	h.must(os.Link(h.in("private/deep/"+canaryName), h.in("tree/link")))
	h.mkdir("public/m2")
	withMounts(t, func() {
		mount(t, h.in("private"), h.in("public/m1"), "", "", unix.MS_BIND)
		defer unix.Unmount(h.in("public/m1"), unix.MNT_DETACH)
		mount(t, h.in("keys"), h.in("public/m2"), "", "", unix.MS_BIND)
		defer unix.Unmount(h.in("public/m2"), unix.MNT_DETACH)
		mount(t, "tmpfs", h.in("public/m3"), "tmpfs", "", 0)
		defer unix.Unmount(h.in("public/m3"), unix.MNT_DETACH)
		h := h.at(h.dir)                               // here, where the mounts are
		err := h.move("tree", "public/m3/tree", false) // which would be a copy with one name
		want(t, err, wire.PrivacyModeBlocked, "private")
		h.tellsNothing("a copy", err)
		h.gone("public/m3/tree")
		h.noTemps()
		h.blocked("public/m1/deep/" + canaryName)
		h.blocked("public/m2/" + canaryName + ".key")
		h.names(wire.FileList{Path: ".", Recursive: true})
		if got, err := h.read("public/m2/sub/plain"); err != nil || got != "plain" {
			t.Errorf("beside it: %q, %v", got, err)
		}
		want(t, h.delete("public/m1", true), wire.PrivacyModeBlocked)
		want(t, h.delete("public", true), wire.PrivacyModeBlocked)
		h.has("private/deep/"+canaryName, canary)
	})
}

// TestPrivateSpellings: where a name has several spellings, a pattern closes all
// that it could mean.
// What lies in something private is private, too, where it is mounted a second time.
func TestPrivateMountedInPart(t *testing.T) {
	h := newHideout(t, "@/nothing")
	h.put("private/deep/inner/"+canaryName, canary)
	h.put("private/deep/"+canaryName, canary)
	h.must(os.Chmod(h.in("private"), 0o700))
	h.put("keys/sub/"+canaryName+".key", canary)
	h.put("keys/sub/plain", "plain")
	h.mkdir("private/again")
	for _, dir := range []string{"public/a b", "public/m2", "public/m3", "public/m4"} {
		h.mkdir(dir)
	}
	h.put("public/file", "")
	withMounts(t, func() {
		bind := func(from, to string) func() {
			mount(t, h.in(from), h.in(to), "", "", unix.MS_BIND)
			return func() { _ = unix.Unmount(h.in(to), unix.MNT_DETACH) }
		}
		defer bind("private/deep", "public/a b")()
		defer bind("keys/sub", "public/m2")()
		inside := bind("private/deep", "private/again") // which is private anyway
		h := h.at(h.dir, "@/private", "@/keys/**/*.key")
		h.secrets = h.private
		h.blocked("public/a b/" + canaryName)
		h.blocked("public/a b/inner/" + canaryName)
		h.blocked("public/m2/" + canaryName + ".key")
		h.blocked("private/again/" + canaryName)
		if got, err := h.read("public/m2/plain"); err != nil || got != "plain" {
			t.Errorf("beside it: %q, %v", got, err)
		}
		h.names(wire.FileList{Path: ".", Recursive: true})
		if err := h.delete("public/m2", true); wire.CodeOf(err) != wire.PrivacyModeBlocked {
			t.Errorf("what holds it is deleted: %v", err)
		}

		// What comes and goes while it runs.
		later := bind("private/deep/inner", "public/m3")
		h.blocked("public/m3/" + canaryName)
		file := bind("private/deep/"+canaryName, "public/file")
		h.blocked("public/file")
		again := bind("public/m3", "public/m4")
		h.blocked("public/m4/" + canaryName)
		open, ok := errors.AsType[*NotSealed](second0(h.rules("@/private").Sealed(h.ctx, false)))
		if !ok || !strings.Contains(open.Why, "mounted at") {
			t.Errorf("it is sealed: %v", open)
		}
		again()
		file()
		later()
		h.put("public/m3/new", "new")
		if got, err := h.read("public/m3/new"); err != nil || got != "new" {
			t.Errorf("what is no longer mounted: %q, %v", got, err)
		}
		inside()
	})
}

func TestSecondPlaces(t *testing.T) {
	text := func(names []string) string { return "/" + strings.Join(names, "/") }
	var got []string
	for _, s := range secondPlaces(strings.NewReader(`22 1 8:2 / / rw - ext4 /dev/sda2 rw
23 22 0:5 / /dev rw - devtmpfs devtmpfs rw
24 22 0:4 mnt:[4026531840] /run/ns rw - nsfs nsfs rw
25 22 8:2 /var/lib/x /var/lib/x rw - ext4 /dev/sda2 rw
26 22 8:3 / /hidden rw - ext4 /dev/sda3 rw
27 22 8:3 /a\040b /mnt rw shared:1 - ext4 /dev/sda3 rw
28 22 8:4 / /hidden rw - ext4 /dev/sda4 rw
29 22 8:2 /srv/private/deep /mnt/deep rw - ext4 /dev/sda2 rw
30 22 8:3 /a\040b/c /mnt/c rw - ext4 /dev/sda3 rw
31
`)) {
		got = append(got, text(s.place)+" is "+text(s.same))
	}
	want := []string{"/mnt/deep is /srv/private/deep", "/srv/private/deep is /mnt/deep"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func second0(_ bool, err error) error { return err }

func TestPrivateSpellings(t *testing.T) {
	h := newHideout(t, "@/stick/docs/*.csv", "@/other/**/x/*.key")
	h.put("stick/docs/"+canaryName+".csv", canary)
	h.put("stick/docs/plain", "plain")
	h.put("stick/plain", "plain")
	h.put("other/plain", "plain")
	if got, err := h.read("stick/docs/plain"); err != nil || got != "plain" {
		t.Errorf("beside what is private: %q, %v", got, err)
	}
	h.secrets.many = func(int) bool { return true }
	for _, path := range []string{"stick/docs/plain", "other/plain", "stick/docs/" + canaryName + ".csv"} {
		want(t, readOf(h, path), wire.PrivacyModeBlocked, "private")
	}
	if got, err := h.read("stick/plain"); err != nil || got != "plain" {
		t.Errorf("where nothing could be meant: %q, %v", got, err)
	}
	h.names(wire.FileList{Path: ".", Recursive: true})
	// What nobody looked at has many; what a machine's own files lie on hasn't.
	for dir, many := range map[string]bool{"/proc": true, h.dir: false} {
		fd, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		h.must(err)
		if manySpellings(fd) != many {
			t.Errorf("in %s a file may have other spellings: %t", dir, !many)
		}
		unix.Close(fd)
	}
}

// TestPrivateLinksLeadOut: a link that lies in something private tells nobody where
// it leads.
func TestPrivateLinksLeadOut(t *testing.T) {
	h := newHideout(t, "@/private")
	h.put("public/"+canaryName, "public")
	h.mkdir("private")
	h.link("../public/"+canaryName, "private/out")
	h.link("../public", "private/dir")
	h.link("../public/"+canaryName+"absent", "private/dangling")
	h.link("self", "private/self")
	h.put("private/"+canaryName, canary)
	h.link(canaryName, "private/in")
	h.link("private/dir", "way")
	for _, path := range []string{"private/out", "private/dir", "private/dir/" + canaryName, "private/dangling", "way"} {
		s, trace, err := h.Stat(h.ctx, wire.FileStat{Path: path})
		want(t, err, wire.PrivacyModeBlocked, "leads_through_private")
		h.tellsNothing("stat", fmt.Sprint(s, trace, err))
		_, _, err = h.List(h.ctx, wire.FileList{Path: path})
		want(t, err, wire.PrivacyModeBlocked)
		h.tellsNothing("list", err)
		want(t, h.write(path, "x"), wire.PrivacyModeBlocked)
	}
	if s, err := h.stat("private/in"); err != nil || !s.Exists {
		t.Errorf("a link that stays inside: %v", err)
	}
	if _, err := h.stat("private/self"); err != nil {
		t.Errorf("a link to itself: %v", err)
	}
	want(t, readOf(h, "private/in"), wire.PrivacyModeBlocked, "private")
	h.has("public/"+canaryName, "public")
}

func readOf(h *hideout, path string) error {
	_, err := h.read(path)
	return err
}

// TestPrivateSwaps: whatever is swapped under an operation, no content gets out.
func TestPrivateSwaps(t *testing.T) {
	h := newHideout(t, "@/private", "@/keys/*.key")
	long := 2 * time.Second
	if testing.Short() {
		long = 300 * time.Millisecond
	}
	h.put("private/f", canary)
	h.put("private/d/f", canary)
	h.put("keys/f.key", canary)
	h.put("public/f", "plain")
	h.put("public/d/f", "plain")
	h.link("../private", "public/l")
	h.link("../public", "public/l2")
	h.link("../private/f", "public/fl")
	stop := make(chan struct{})
	var swappers sync.WaitGroup
	swap := func(a, b string) {
		swappers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, h.in(a), unix.AT_FDCWD, h.in(b), unix.RENAME_EXCHANGE)
				}
			}
		})
	}
	swap("public/l", "public/l2")
	swap("private", "public/d")
	swap("public/f", "public/fl")
	paths := []string{"public/l/f", "public/d/f", "public/f", "public/d/d/f", "private/f", "public/fl"}
	var readers sync.WaitGroup
	until := time.Now().Add(long)
	for range 4 {
		readers.Go(func() {
			for time.Now().Before(until) {
				for _, path := range paths {
					if got, err := h.read(path); err == nil && got == canary {
						t.Errorf("%s was read", path)
						return
					}
					if piece, _, err := h.Piece(h.ctx, wire.TransferRead{Path: path, Length: 100}); err == nil {
						if bytes.Contains(piece.Data, []byte(canary)) {
							t.Errorf("%s was fetched", path)
						}
						piece.Release()
					}
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	swappers.Wait()
}

func TestStubs(t *testing.T) {
	h := newHideout(t, "@/private", "@/private/named;schema=named", "@/private/named/not", "@/public/*.key;names=shown")
	h.put("private/"+canaryName+".csv", canary)
	h.put("private/same", canary)
	h.put("private/named/x.json", canary)
	h.put("private/named/not/x", canary)
	h.put("public/shown.key", canary)
	h.put("public/plain", "plain")
	stub := func(path string) *Stub {
		t.Helper()
		s, trace, err := h.Stub(h.ctx, path, nil)
		h.must(err)
		h.tellsNothing("a stub", fmt.Sprint(s.Path, s.MIME, s.Digest, trace))
		return s
	}
	s := stub("private/" + canaryName + ".csv")
	if s.Size != int64(len(canary)) || s.MIME != "text/csv" || len(s.Digest) != 64 || !isAlias(s.Path[strings.LastIndexByte(s.Path, '/')+1:]) {
		t.Errorf("a stub is %+v", s)
	}
	if got := stub("public/shown.key"); got.Path != h.dir+"/public/shown.key" {
		t.Errorf("with its name shown it is %s", got.Path)
	}
	if again, other := stub(s.Path), stub("private/same"); again.Digest != s.Digest || other.Digest == s.Digest {
		t.Error("the digest of one file changes, or that of two with the same content is one")
	}
	_, _, err := h.Stub(h.ctx, "public/plain", nil)
	want(t, err, wire.InternalError, "not_private")
	_, _, err = h.Stub(h.ctx, "private", nil)
	want(t, err, wire.InternalError, "is_a_directory")
	_, _, err = h.Stub(h.ctx, "private/absent", nil)
	want(t, err, wire.PathNotFound)

	for path, wanted := range map[string]bool{"private/same": false, "private/named/x.json": true, "private/named/not/x": false} {
		_, _, err := h.Stub(h.ctx, path, func(_ context.Context, r io.ReaderAt, size int64, mime string, named bool) error {
			b := make([]byte, size)
			if n, err := r.ReadAt(b, 0); n != len(canary) || err != nil || string(b) != canary || mime != mimeType(path) {
				t.Errorf("a preview sees %q of %s (%s): %v", b[:n], path, mime, err)
			}
			if named != wanted {
				t.Errorf("%s: named is %t", path, named)
			}
			return nil
		})
		h.must(err)
	}
	broken := errors.New("broken")
	if _, _, err := h.Stub(h.ctx, "private/same", func(context.Context, io.ReaderAt, int64, string, bool) error { return broken }); !errors.Is(err, broken) && err == nil {
		t.Errorf("a preview that fails: %v", err)
	}

	if b, err := h.Content(h.ctx, s, big); err != nil || string(b) != canary {
		t.Errorf("its content: %q, %v", b, err)
	}
	_, err = h.Content(h.ctx, s, 3)
	want(t, err, wire.FileTooLarge)
	// Content that is the same in a state that isn't, and the other way round.
	stale := func(what string) {
		t.Helper()
		b, err := h.Content(h.ctx, s, big)
		want(t, err, wire.StubStale)
		h.tellsNothing(what, err)
		if b != nil {
			t.Errorf("%s: %q came all the same", what, b)
		}
	}
	was := s.Digest
	h.must(h.write(s.Path, canary))
	stale("another file with the same content")
	s = stub(s.Path)
	if s.Digest == was {
		t.Error("a file that was replaced by one with the same content has the same digest: who writes can try what it was")
	}
	f, err := os.OpenFile(h.in("private/"+canaryName+".csv"), os.O_WRONLY, 0)
	h.must(err)
	_, err = f.WriteAt([]byte("X"), 0)
	h.must(errors.Join(err, f.Close()))
	stale("a byte changed")
	s = stub(s.Path)
	s.Digest = strings.Repeat("0", 64)
	stale("another content in the same state")
	s = stub(s.Path)
	h.must(os.Rename(h.in("private/"+canaryName+".csv"), h.in("private/elsewhere")))
	stale("a file that was moved away")
	h.link("elsewhere", "private/"+canaryName+".csv")
	stale("a link in its place")
}

func TestSealed(t *testing.T) {
	h := newHideout(t, "@/private")
	// The test's own directories belong to it, but above them may be anything.
	sealed := func(rules ...string) error {
		_, err := h.rules(rules...).Sealed(h.ctx, false)
		return err
	}
	notSealed := func(what string, err error, why string) {
		t.Helper()
		open, ok := errors.AsType[*NotSealed](err)
		if !ok || !strings.Contains(open.Why, why) {
			t.Errorf("%s: %v, want %s", what, err, why)
		}
	}
	h.must(os.Chmod(h.dir, 0o700))
	notSealed("what isn't there", sealed("@/private"), "looked at")
	h.put("private/f", canary)
	notSealed("a directory open to all", sealed("@/private"), "mode 0755")
	for _, open := range []bool{true, false} {
		mended, err := h.rules("@/private").Sealed(h.ctx, true)
		if h.must(err); mended != open || mode(h, "private") != 0o700 {
			t.Errorf("mended %t, it has mode %04o", mended, mode(h, "private"))
		}
	}
	h.must(sealed("@/private"))
	notSealed("wildcards", sealed("@/private", "@/*.key"), "wildcards")
	h.put("file", canary)
	notSealed("a file open to all", sealed("@/file"), "mode 0644")
	h.must(os.Chmod(h.in("file"), 0o600))
	h.must(sealed("@/private", "@/file"))
	h.link("private", "link")
	h.must(sealed("@/link"))
	h.must(os.Chmod(h.dir, 0o777))
	notSealed("a parent that all may write in", sealed("@/private"), "others can write")
	h.must(os.Chmod(h.dir, 0o777|os.ModeSticky))
	h.must(sealed("@/private", "@/link"))
	h.must(os.Chmod(h.dir, 0o755))
	h.must(os.Link(h.in("private/f"), h.in("public")))
	notSealed("another name open to all", sealed("@/private"), "another name")
	h.must(os.Chmod(h.in("public"), 0o600))
	h.must(sealed("@/private"))
	if os.Geteuid() == 0 {
		h.must(os.Chown(h.in("private"), 12345, 0))
		notSealed("somebody else's", sealed("@/private"), "user 12345")
		h.must(os.Chown(h.in("private"), 0, 0))
		h.must(os.Chown(h.dir, 12345, 0))
		notSealed("in somebody else's directory", sealed("@/private"), "user 12345")
		h.must(os.Chown(h.dir, 0, 0))
	}
	var none *Private
	_, err := none.Sealed(h.ctx, true)
	h.must(err)
}

// What may unseal something private is noticed at once, and what happens beside it
// isn't.
func TestWatch(t *testing.T) {
	h := newHideout(t, "@/way/link/private", "@/single", "@/later/inside", "@/*.key")
	h.mkdir("way")
	h.mkdir("real/private")
	h.link("../real", "way/link")
	h.put("single", canary)
	ctx, cancel := context.WithCancel(h.ctx)
	calls, ended := make(chan struct{}, 100), make(chan error)
	go func() { ended <- h.secrets.Watch(ctx, func() { calls <- struct{}{} }) }()
	<-calls // the first
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"it is opened", func() error { return os.Chmod(h.in("real/private"), 0o755) }},
		{"and closed", func() error { return os.Chmod(h.in("real/private"), 0o700) }},
		{"a file is opened", func() error { return os.Chmod(h.in("single"), 0o644) }},
		{"a file has another name", func() error { return os.Link(h.in("single"), h.in("other")) }},
		{"what is above is opened", func() error { return os.Chmod(h.in("way"), 0o777) }},
		{"something comes", func() error { return os.MkdirAll(h.in("later/inside"), 0o755) }},
		{"it goes", func() error { return os.Rename(h.in("real/private"), h.in("real/elsewhere")) }},
		{"another comes", func() error { return os.Mkdir(h.in("real/private"), 0o755) }},
		{"which is opened", func() error { return os.Chmod(h.in("real/private"), 0o711) }},
		{"a link leads elsewhere", func() error {
			return errors.Join(os.Symlink("..", h.in("way/new")), os.Rename(h.in("way/new"), h.in("way/link")))
		}},
	} {
		h.must(step.do())
		<-calls
		for len(calls) > 0 { // it may be seen in more than one event
			<-calls
		}
		t.Log(step.what)
	}
	// Beside: nothing waits, or comes, but for the last.
	h.put("way/beside", "x")
	h.put("beside", "x")
	h.must(os.Chmod(h.in("beside"), 0o600))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w := watch{}
	w.fd, _ = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	defer unix.Close(w.fd)
	w.arm(h.secrets)
	h.put("way/beside2", "x")
	h.must(os.Chmod(h.in("way/beside2"), 0o600))
	buf := make([]byte, 4096)
	n, err := unix.Read(w.fd, buf)
	if err != nil || n == 0 || w.concern(buf[:n]) {
		t.Errorf("what happens beside it is of concern (%d bytes of events, %v)", n, err)
	}
	h.must(os.Chmod(h.in("single"), 0o600))
	if n, err = unix.Read(w.fd, buf); err != nil || !w.concern(buf[:n]) {
		t.Errorf("what happens to it isn't (%v)", err)
	}
	var none *Private
	if err := none.Watch(h.ctx, nil); err != nil {
		t.Error(err)
	}
}

func mode(h *hideout, path string) os.FileMode {
	h.t.Helper()
	info, err := os.Stat(h.in(path))
	h.must(err)
	return info.Mode().Perm()
}

// TestPrivateRoots: a root may lie in something private if its name is told.
func TestPrivateRoots(t *testing.T) {
	h := newHideout(t, "@/private", "@/open;names=shown", "@/dirs/*")
	h.mkdir("private/sub")
	h.mkdir("open/sub")
	h.mkdir("dirs/one")
	for path, ok := range map[string]bool{"": true, "private": true, "private/sub": false, "open": true, "open/sub": true, "dirs": true, "dirs/one": false} {
		err := h.secrets.CheckRoot(strings.TrimSuffix(h.dir+"/"+path, "/"))
		if (err == nil) != ok {
			t.Errorf("%q as a root: %v", path, err)
		}
		h.tellsNothing("a refusal", err)
	}
	var none *Private
	h.must(none.CheckRoot("/nowhere"))
	in := h.at(h.dir + "/private")
	in.put(canaryName, canary)
	in.blocked(canaryName)
	want(t, readOf(in, "."), wire.PrivacyModeBlocked, "private")
	if got := in.names(wire.FileList{Path: "."}); len(got) != 2 {
		t.Errorf("in a private root: %v", got)
	}
}

// TestShown: paths as they stand in the record.
func TestShown(t *testing.T) {
	h := newHideout(t, "@/private")
	h.put("private/"+canaryName, canary)
	h.put("public/plain", "")
	h.link("private", "l")
	for _, path := range []string{
		"private/" + canaryName, "l/" + canaryName, "private/" + canaryName + "/x", "private/absent/" + canaryName, "l/x/" + canaryName + "/../y",
		h.dir + "/private/" + canaryName, "private/" + canaryName + "\x00", strings.Repeat("private/../", 500) + "private/" + canaryName,
	} {
		h.tellsNothing(path, h.Shown(h.ctx, path))
	}
	for _, path := range []string{"public/plain", "public/absent", "", "private"} {
		if got := h.Shown(h.ctx, path); got != path && got != h.dir+"/"+path {
			t.Errorf("%s is shown as %s", path, got)
		}
	}
	// Without rules nothing is masked.
	if got := newBench(t).Shown(h.ctx, "public/plain"); got != "public/plain" {
		t.Errorf("shown as %s", got)
	}
}
