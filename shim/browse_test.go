package shim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/internal/testenv"
	"farhand/shim/shimtest"
	"farhand/wire"
)

func list(t *testing.T, s *shimtest.Socket, browse, ref, cursor string) wire.DirectoryListResponse {
	t.Helper()
	req := wire.DirectoryListRequest{}
	for _, f := range []struct {
		field **string
		value string
	}{{&req.BrowseID, browse}, {&req.DirectoryRef, ref}, {&req.Cursor, cursor}} {
		if f.value != "" {
			*f.field = &f.value
		}
	}
	return decodeTo[wire.DirectoryListResponse](t, s.Call(wire.TDirectoryListRequest, req), wire.TDirectoryListResponse)
}

func names(resp wire.DirectoryListResponse) []string {
	var all []string
	for _, e := range resp.Entries {
		all = append(all, e.Name)
	}
	return all
}

func mkdirs(t *testing.T, base string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.MkdirAll(filepath.Join(base, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBrowse(t *testing.T) {
	r := newRig(t)
	mkdirs(t, r.root, "b", "A", "c", ".hidden", "a<b", "line\nbreak", "soft\u00adhyphen", "secret", "café", "sub/deep")
	os.WriteFile(filepath.Join(r.root, "file"), nil, 0o644)
	os.Symlink(filepath.Join(r.root, "b"), filepath.Join(r.root, "link"))
	os.Mkdir(filepath.Join(r.root, "\xff"), 0o755)
	other := filepath.Join(r.dir, "other")
	mkdirs(t, r.dir, "other")
	os.Symlink(other, filepath.Join(r.dir, "way"))
	r.cfg.Roots = []string{r.root, filepath.Join(r.dir, "way"), other, filepath.Join(r.dir, "missing"), filepath.Join(r.root, "file"), filepath.Join(r.root, "secret")}
	r.cfg.Forbidden = func(path string) error {
		if filepath.Base(path) == "secret" {
			return errors.New("closed off")
		}
		return nil
	}
	control := r.start()
	top := list(t, control, "", "", "")
	if got := names(top); !slices.Equal(got, []string{"work", "other"}) {
		t.Fatalf("roots %v", got)
	}
	left := top.ExpiresAt - float64(time.Now().Unix())
	if top.Current != nil || top.ParentRef != nil || top.NextCursor != nil || top.Truncated || left < 290 || left > 301 || len(top.BrowseID) != 32 {
		t.Errorf("first answer %+v", top)
	}
	work := list(t, control, top.BrowseID, top.Entries[0].DirectoryRef, "")
	if got := names(work); !slices.Equal(got, []string{".hidden", "A", "b", "c", "café", "sub"}) {
		t.Errorf("entries %v", got)
	}
	if work.Current.Path != r.root || work.Current.DirectoryRef != top.Entries[0].DirectoryRef || work.ParentRef != nil || work.BrowseID != top.BrowseID {
		t.Errorf("current %+v, parent %v", work.Current, work.ParentRef)
	}
	sub := work.Entries[5]
	if sub.Path != filepath.Join(r.root, "sub") {
		t.Errorf("path %s", sub.Path)
	}
	deep := list(t, control, top.BrowseID, sub.DirectoryRef, "")
	if *deep.ParentRef != work.Current.DirectoryRef || len(deep.Entries) != 1 {
		t.Errorf("deep %+v", deep)
	}
	// The same directory keeps its reference.
	if again := list(t, control, top.BrowseID, work.Current.DirectoryRef, ""); again.Entries[5].DirectoryRef != sub.DirectoryRef {
		t.Error("a new reference for the same directory")
	}
	if rec := r.last("DIRECTORY_LIST"); rec.Details["path"] != r.root || rec.Details["entries_returned"] != 6.0 || rec.Details["truncated"] != false || rec.Details["browse_id"] != top.BrowseID {
		t.Errorf("record %+v", rec)
	}

	call := func(browse, ref, cursor string) wire.Envelope {
		req := map[string]any{}
		for k, v := range map[string]string{"browse_id": browse, "directory_ref": ref, "cursor": cursor} {
			if v != "" {
				req[k] = v
			}
		}
		return control.Call(wire.TDirectoryListRequest, req)
	}
	for _, bad := range [][3]string{
		{top.BrowseID, "", ""}, {"", sub.DirectoryRef, ""}, {"", "", "c"}, {top.BrowseID, "x", ""}, {"x", sub.DirectoryRef, ""},
		{top.BrowseID, sub.DirectoryRef, "x"}, {top.BrowseID, strings.Repeat("x", 257), ""}, {top.BrowseID, "/etc", ""},
	} {
		wantError(t, call(bad[0], bad[1], bad[2]), wire.DirectoryReferenceInvalid)
	}
	if rec := r.last("DIRECTORY_LIST"); len(rec.Details) != 1 || *rec.Result.ErrorCode != "DIRECTORY_REFERENCE_INVALID" {
		t.Errorf("record %+v", rec)
	}
	// What vanished, or became a link, or has a link above it, is unavailable.
	os.RemoveAll(filepath.Join(r.root, "c"))
	wantError(t, call(top.BrowseID, work.Entries[3].DirectoryRef, ""), wire.DirectoryUnavailable)
	os.Symlink(other, filepath.Join(r.root, "c"))
	wantError(t, call(top.BrowseID, work.Entries[3].DirectoryRef, ""), wire.DirectoryUnavailable)
	os.Rename(filepath.Join(r.root, "sub"), filepath.Join(r.dir, "moved"))
	os.Symlink(filepath.Join(r.dir, "moved"), filepath.Join(r.root, "sub"))
	wantError(t, call(top.BrowseID, deep.Entries[0].DirectoryRef, ""), wire.DirectoryUnavailable)
	wantError(t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "s", BrowseID: top.BrowseID, DirectoryRef: work.Entries[3].DirectoryRef}), wire.DirectoryUnavailable)
	// Attaching uses the browse up.
	attach := wire.AttachSession{SessionID: "s", BrowseID: top.BrowseID, DirectoryRef: work.Entries[0].DirectoryRef}
	decodeTo[wire.SessionBinding](t, control.Call(wire.TAttachSession, attach), wire.TSessionAttached)
	wantError(t, call(top.BrowseID, work.Entries[0].DirectoryRef, ""), wire.DirectoryReferenceInvalid)
	wantError(t, control.Call(wire.TAttachSession, attach), wire.DirectoryReferenceInvalid)
}

// TestBrowseReadOnly: what we may not write can't be a root.
func TestBrowseReadOnly(t *testing.T) {
	testenv.Need(t, "unprivileged", os.Getuid() != 0, "root may write everywhere")
	r := newRig(t)
	mkdirs(t, r.root, "a", "b")
	os.Chmod(filepath.Join(r.root, "a"), 0o555)
	control := r.start()
	top := list(t, control, "", "", "")
	if got := names(list(t, control, top.BrowseID, top.Entries[0].DirectoryRef, "")); !slices.Equal(got, []string{"b"}) {
		t.Errorf("entries %v", got)
	}
}

// TestBrowsePages: 200 entries a page, cursors that stay the same, and the same
// listing in all.
func TestBrowsePages(t *testing.T) {
	r := newRig(t)
	for i := range 450 {
		mkdirs(t, r.root, fmt.Sprintf("d%03d", i))
	}
	control := r.start()
	top := list(t, control, "", "", "")
	ref := top.Entries[0].DirectoryRef
	var all []string
	cursor, pages := "", 0
	for {
		page := list(t, control, top.BrowseID, ref, cursor)
		all = append(all, names(page)...)
		pages++
		if page.Truncated || len(page.Entries) > 200 {
			t.Errorf("page %d: %d entries, truncated %t", pages, len(page.Entries), page.Truncated)
		}
		if page.NextCursor == nil {
			break
		}
		again := list(t, control, top.BrowseID, ref, cursor)
		if *again.NextCursor != *page.NextCursor {
			t.Error("the same page has another cursor")
		}
		cursor = *page.NextCursor
	}
	if pages != 3 || len(all) != 450 || !slices.IsSorted(all) {
		t.Errorf("%d pages, %d entries", pages, len(all))
	}
	// A cursor belongs to its directory.
	child := list(t, control, top.BrowseID, ref, "").Entries[0].DirectoryRef
	wantError(t, control.Call(wire.TDirectoryListRequest, wire.DirectoryListRequest{BrowseID: &top.BrowseID, DirectoryRef: &child, Cursor: &cursor}), wire.DirectoryReferenceInvalid)
}

// TestBrowseBounds: 1000 entries are looked at, 1200 references given out.
func TestBrowseBounds(t *testing.T) {
	r := newRig(t)
	mkdirs(t, r.root, "one", "two")
	for i := range 1005 {
		mkdirs(t, r.root, fmt.Sprintf("one/%04d", i))
	}
	for i := range 300 {
		mkdirs(t, r.root, fmt.Sprintf("two/%04d", i))
	}
	control := r.start()
	top := list(t, control, "", "", "")
	work := list(t, control, top.BrowseID, top.Entries[0].DirectoryRef, "")
	count := func(ref string) (n int, truncated bool) {
		cursor := ""
		for {
			page := list(t, control, top.BrowseID, ref, cursor)
			n += len(page.Entries)
			truncated = truncated || page.Truncated
			if page.NextCursor == nil {
				return n, truncated
			}
			cursor = *page.NextCursor
		}
	}
	if n, truncated := count(work.Entries[0].DirectoryRef); n != 1000 || !truncated {
		t.Errorf("%d of 1005 entries, truncated %t", n, truncated)
	}
	// 1 root, 2 in it and 1000 are given out: 197 are left.
	if n, truncated := count(work.Entries[1].DirectoryRef); n != 197 || !truncated {
		t.Errorf("%d of 300 entries, truncated %t", n, truncated)
	}
	if n, truncated := count(work.Entries[0].DirectoryRef); n != 1000 || !truncated {
		t.Errorf("again: %d of 1005 entries, truncated %t", n, truncated)
	}
}

// TestBrowsesAreFew: the ninth drops the one that was used longest ago.
func TestBrowsesAreFew(t *testing.T) {
	r := newRig(t)
	control := r.start()
	var walks []wire.DirectoryListResponse
	for range 8 {
		walks = append(walks, list(t, control, "", "", ""))
	}
	list(t, control, walks[0].BrowseID, walks[0].Entries[0].DirectoryRef, "")
	list(t, control, "", "", "")
	list(t, control, walks[0].BrowseID, walks[0].Entries[0].DirectoryRef, "")
	wantError(t, control.Call(wire.TDirectoryListRequest, wire.DirectoryListRequest{BrowseID: &walks[1].BrowseID, DirectoryRef: &walks[1].Entries[0].DirectoryRef}), wire.DirectoryReferenceInvalid)
}

// TestBrowseExpires five minutes after its start, however much it is used.
func TestBrowseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		control := r.start()
		top := list(t, control, "", "", "")
		faketime.Advance(299 * time.Second)
		list(t, control, top.BrowseID, top.Entries[0].DirectoryRef, "")
		faketime.Advance(time.Second)
		wantError(t, control.Call(wire.TDirectoryListRequest, wire.DirectoryListRequest{BrowseID: &top.BrowseID, DirectoryRef: &top.Entries[0].DirectoryRef}), wire.DirectoryReferenceInvalid)
	})
}

// TestBrowseCeilings: only what leads to an allowed root is offered.
func TestBrowseCeilings(t *testing.T) {
	r := newRig(t)
	mkdirs(t, r.root, "a/b/c", "d")
	mkdirs(t, r.dir, "other")
	r.cfg.Roots = []string{filepath.Join(r.dir, "other"), r.root}
	withGrants(t, r, &wire.GrantSet{Approval: &wire.Ceiling{Roots: &[]string{filepath.Join(r.root, "a/b"), "relative"}}})
	control := r.start()
	page := list(t, control, "", "", "")
	for _, want := range []string{"work", "a", "b", "c"} {
		if got := names(page); !slices.Equal(got, []string{want}) {
			t.Fatalf("entries %v instead of %s", got, want)
		}
		page = list(t, control, page.BrowseID, page.Entries[0].DirectoryRef, "")
	}
}

// TestNoRoots: a machine that offers nothing says so with an empty list.
func TestNoRoots(t *testing.T) {
	r := newRig(t)
	r.cfg.Roots = nil
	control := r.start()
	if top := list(t, control, "", "", ""); len(top.Entries) != 0 || top.BrowseID == "" {
		t.Errorf("%+v", top)
	}
}

// TestHello: what no platform would take is cleaned or left out, and the size is
// kept whatever is connected.
func TestHello(t *testing.T) {
	r := newRig(t)
	r.cfg.Hello = func(_ context.Context, channel wire.Channel, root string) (wire.Hello, error) {
		if (channel == wire.Control) != (root == "") {
			t.Errorf("channel %d with root %q", channel, root)
		}
		h := wire.Hello{
			ShimVersion: "not a <version>", MachineID: "machine-1", Platform: "linux", Arch: "arm64",
			DisplayName:  "a<b>\u2028\u202e\x00" + strings.Repeat("é", 200),
			Capabilities: wire.Capabilities{wire.Files, wire.Files, wire.DirectoryBrowse},
		}
		for i := range 500 {
			h.HardwareDevices = append(h.HardwareDevices, wire.HardwareDevice{
				Type: "usb", ID: fmt.Sprintf("usb:1234:%04d", 499-i), Desc: strings.Repeat("d", 128), Aliases: []string{"x", "y"}, Generation: 1,
			})
		}
		for i := range 50 {
			h.LocalLLMModels = append(h.LocalLLMModels, fmt.Sprint("model", i))
		}
		return h, nil
	}
	control := r.start()
	h := control.Hello
	if h.ShimVersion != "0" || h.DisplayName != "ab"+strings.Repeat("é", 126) || len(h.LocalLLMModels) != 0 {
		t.Errorf("version %q, name %q, models %v", h.ShimVersion, h.DisplayName, h.LocalLLMModels)
	}
	if !slices.Equal(h.Capabilities, wire.Capabilities{wire.DirectoryBrowse, wire.Files}) {
		t.Errorf("capabilities %v", h.Capabilities)
	}
	if n := len(h.HardwareDevices); n == 0 || n > 500 || !h.HardwareTruncated || h.HardwareDevices[0].ID != "usb:1234:0000" || h.HardwareDevices[0].Aliases != nil {
		t.Errorf("%d devices, truncated %t, first %+v", n, h.HardwareTruncated, h.HardwareDevices[0])
	}
	data, _ := r.data(control, "s")
	if h := data.Hello; h.Capabilities.Has(wire.DirectoryBrowse) || *h.AllowedRoot != r.root {
		t.Errorf("data HELLO %+v", h)
	}
}
