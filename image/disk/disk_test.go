package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"farhand/image/initramfs/table"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("system "), 200_000)
	from := filepath.Join(dir, "system")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	plan := Plan{Signature: 0xfa44a17d, Partitions: []Partition{
		{Number: 1, Type: 0x0c, Size: mib}, {Number: 2, Type: 0x0c, Size: 2 * mib}, {Number: 3, Type: 0x0c, Size: 2 * mib},
		{Number: 5, Type: 0x83, Size: 2 * mib, From: from}, {Number: 6, Type: 0x83, Size: 2 * mib, From: from}, {Number: 7, Type: 0x83, Size: 3 * mib, Blank: mib},
	}}
	path := filepath.Join(dir, "card")
	if err := Write(plan, path); err != nil {
		t.Fatal(err)
	}
	spans, size, err := plan.Spans()
	if err != nil {
		t.Fatal(err)
	}
	card, err := os.ReadFile(path)
	if err != nil || int64(len(card)) != size {
		t.Fatalf("%d bytes, planned %d, %v", len(card), size, err)
	}
	// What the initramfs reads is what was planned.
	got, err := table.Read(bytes.NewReader(card))
	if err != nil {
		t.Fatal(err)
	}
	var want []table.Partition
	for _, s := range spans {
		if s.Number == 5 {
			start := s.Start - mib
			want = append(want, table.Partition{Number: 4, Type: extended, Start: start / 512, Size: (size - start) / 512})
		}
		want = append(want, table.Partition{Number: s.Number, Type: s.Type, Start: s.Start / 512, Size: s.Size / 512})
	}
	if got.Signature != plan.Signature || !reflect.DeepEqual(got.Partitions, want) {
		t.Errorf("the table says %+v, want %+v", got, want)
	}
	for _, s := range spans {
		if s.From != "" && !bytes.Equal(card[s.Start:s.Start+int64(len(content))], content) {
			t.Errorf("partition %d isn't what went into it", s.Number)
		}
	}
	for name, bad := range map[string]Plan{
		"no whole MiB": {Partitions: []Partition{{Number: 1, Size: 7}}},
		"out of order": {Partitions: []Partition{{Number: 2, Size: mib}, {Number: 1, Size: mib}}},
		"too large":    {Partitions: []Partition{{Number: 1, Size: mib, From: from}}},
	} {
		if err := Write(bad, filepath.Join(dir, "bad")); err == nil {
			t.Errorf("%s: it is written", name)
		}
	}
}

// A card for UEFI: there is no sector between partitions, and a copy of the
// table at the end.
func TestWriteGUID(t *testing.T) {
	plan := Plan{Signature: 0xfa44a17d, GUID: true, Partitions: []Partition{
		{Number: 1, Type: table.EFI, Size: mib, Name: "FARHAND"}, {Number: 5, Type: table.Linux, Size: 2 * mib}, {Number: 6, Type: table.Linux, Size: 2 * mib},
		{Number: 7, Type: table.Linux, Size: 3 * mib, Blank: mib},
	}}
	path := filepath.Join(t.TempDir(), "card")
	if err := Write(plan, path); err != nil {
		t.Fatal(err)
	}
	card, err := os.ReadFile(path)
	if err != nil || len(card) != 13*mib {
		t.Fatalf("%d bytes, %v", len(card), err)
	}
	got, err := table.Read(bytes.NewReader(card))
	want := []table.Partition{{Number: 1, Type: table.EFI, Start: 8192, Size: 2048}, {Number: 5, Type: table.Linux, Start: 10240, Size: 4096},
		{Number: 6, Type: table.Linux, Start: 14336, Size: 4096}, {Number: 7, Type: table.Linux, Start: 18432, Size: 6144}}
	if err != nil || !got.GUID() || got.Signature != plan.Signature || !reflect.DeepEqual(got.Partitions, want) {
		t.Errorf("the table says %+v, %v", got, err)
	}
	// Whoever writes only what means something writes all of the table.
	content, err := plan.Content()
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, len(card))
	for _, x := range content {
		copy(part[x.Start:x.Start+x.Length], card[x.Start:])
	}
	if !bytes.Equal(part, card) {
		t.Errorf("the content %+v leaves something of it out", content)
	}
}
