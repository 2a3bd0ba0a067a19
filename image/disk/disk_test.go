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
