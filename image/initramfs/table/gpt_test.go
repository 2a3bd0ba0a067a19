package table

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// guidCard has the layout of an image for UEFI, in small.
func guidCard(t testing.TB, sizeMiB int64) *disk {
	t.Helper()
	d := &disk{b: make([]byte, sizeMiB<<20), writes: -1}
	if err := WriteGPT(d, 0xfa44a17d, guidParts(), 16*mib); err != nil {
		t.Fatal(err)
	}
	return d
}

func guidParts() []Named {
	return []Named{
		{Partition{1, EFI, 4 * mib, mib}, "FARHAND"}, {Partition{2, FAT, 5 * mib, mib}, "boot A"}, {Partition{3, FAT, 6 * mib, mib}, "boot B"},
		{Partition{5, Linux, 7 * mib, mib}, "system A"}, {Partition{6, Linux, 8 * mib, mib}, "system B"}, {Partition{7, Linux, 9 * mib, 2 * mib}, "data"},
	}
}

func TestGUIDTable(t *testing.T) {
	d := guidCard(t, 16)
	got, err := Read(d)
	if err != nil {
		t.Fatal(err)
	}
	var want []Partition
	for _, p := range guidParts() {
		want = append(want, p.Partition)
	}
	if !got.GUID() || got.Signature != 0xfa44a17d || !reflect.DeepEqual(got.Partitions, want) {
		t.Errorf("%+v", got)
	}
	// The copy, whose sums are its own, is where the table says.
	last := d.b[len(d.b)-Sector:]
	if string(last[:8]) != "EFI PART" || binary.LittleEndian.Uint64(last[atCopy:]) != 1 || binary.LittleEndian.Uint64(last[atSelf:]) != 16*mib-1 {
		t.Errorf("the last sector begins with %x", last[:headerSize])
	}
	for name, edit := range map[string]func([]byte){
		"another signature":      func(b []byte) { b[Sector] = 0 },
		"a wrong sum":            func(b []byte) { b[Sector+atGUID]++ },
		"a wrong sum of entries": func(b []byte) { b[2*Sector+atStart]++ },
		"entries elsewhere":      func(b []byte) { b[Sector+atEntries] = 9 },
		"too many entries":       func(b []byte) { b[Sector+atCount+3] = 1 },
	} {
		d := guidCard(t, 16)
		edit(d.b)
		if got, err := Read(d); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, bad := range map[string]Named{
		"no such type":     {Partition{1, 7, 4 * mib, mib}, ""},
		"number 0":         {Partition{0, Linux, 4 * mib, mib}, ""},
		"within the table": {Partition{1, Linux, 3, mib}, ""},
		"beyond the end":   {Partition{1, Linux, 15 * mib, mib}, ""},
		"a long name":      {Partition{1, Linux, 4 * mib, mib}, strings.Repeat("x", 37)},
	} {
		if err := WriteGPT(guidCard(t, 16), 1, []Named{bad}, 16*mib); err == nil {
			t.Errorf("%s: it is written", name)
		}
	}
}

// Wherever the power goes there is a whole table, which is the old or the new
// one, and the next start finishes.
func TestGUIDTableGrows(t *testing.T) {
	for cut := 0; ; cut++ {
		d := guidCard(t, 64)
		d.writes = cut
		_, err := Grow(d, 64*mib, nop)
		finished := err == nil
		if !finished && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		between, err := Read(d)
		if err != nil {
			t.Fatalf("after %d writes: %v", cut, err)
		}
		for i, p := range guidParts()[:5] {
			if between.Partitions[i] != p.Partition {
				t.Errorf("after %d writes %+v is %+v", cut, p, between.Partitions[i])
			}
		}
		d.writes = -1
		if changed, err := Grow(d, 64*mib, nop); err != nil || changed == finished {
			t.Fatalf("after %d writes: changed %t, %v", cut, changed, err)
		}
		after, err := Read(d)
		if err != nil {
			t.Fatal(err)
		}
		// The copy takes the last sectors, so the last whole MiB isn't the data's.
		if last := after.Last(); last.Start != 9*mib || last.Start+last.Size != 63*mib {
			t.Errorf("after %d writes and another start: %+v", cut, after.Partitions)
		}
		if finished {
			break
		}
	}
	// Copied to a still larger one: the entries go back to their first place.
	d := guidCard(t, 128)
	for _, size := range []int64{32, 64, 128, 16} {
		if _, err := Grow(d, size*mib, nop); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(d)
	if err != nil || got.Last().Start+got.Last().Size != 127*mib {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzGUIDTable(f *testing.F) {
	whole := guidCard(f, 16).b
	f.Add(whole[Sector:2*Sector], whole[2*Sector:Head*Sector], int64(64*mib))
	f.Fuzz(func(t *testing.T, header, all []byte, sectors int64) {
		d := guidCard(t, 16)
		copy(d.b[Sector:2*Sector], header)
		copy(d.b[2*Sector:Head*Sector], all)
		if _, err := Read(d); err != nil || sectors < 0 {
			return
		}
		_, _ = Grow(d, sectors, nop)
	})
}
