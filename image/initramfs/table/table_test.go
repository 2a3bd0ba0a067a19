package table

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

// disk is a card in memory whose power goes after so many writes.
type disk struct {
	b      []byte
	writes int // left; below 0: for ever
}

var errCut = errors.New("power cut")

func (d *disk) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > int64(len(d.b)) {
		return 0, errors.New("beyond the end")
	}
	return copy(p, d.b[at:]), nil
}

func (d *disk) WriteAt(p []byte, at int64) (int, error) {
	if d.writes == 0 {
		return 0, errCut
	}
	if at+int64(len(p)) > int64(len(d.b)) {
		return 0, errors.New("beyond the end")
	}
	d.writes--
	return copy(d.b[at:], p), nil
}

func (d *disk) put(at int64, i int, kind byte, start, size int64) {
	s := d.b[at*Sector:]
	s[510], s[511] = 0x55, 0xaa
	e := s[entries+i*entrySize:]
	e[4] = kind
	binary.LittleEndian.PutUint32(e[8:], uint32(start))
	binary.LittleEndian.PutUint32(e[12:], uint32(size))
}

const mib = 2048

// card has the image's layout, in small.
func card(sizeMiB int) *disk {
	d := &disk{b: make([]byte, sizeMiB<<20), writes: -1}
	binary.LittleEndian.PutUint32(d.b[440:], 0xfa44a17d)
	d.put(0, 0, 0x0c, 4*mib, mib)
	d.put(0, 1, 0x0c, 5*mib, mib)
	d.put(0, 2, 0x0c, 6*mib, mib)
	d.put(0, 3, extended, 7*mib, 7*mib)
	d.put(7*mib, 0, 0x83, mib, mib)
	d.put(7*mib, 1, 0x05, 2*mib, 2*mib)
	d.put(9*mib, 0, 0x83, mib, mib)
	d.put(9*mib, 1, 0x05, 4*mib, 3*mib)
	d.put(11*mib, 0, 0x83, mib, 2*mib)
	return d
}

func nop() error { return nil }

func TestRead(t *testing.T) {
	got, err := Read(card(16))
	if err != nil {
		t.Fatal(err)
	}
	want := []Partition{{1, 0x0c, 4 * mib, mib}, {2, 0x0c, 5 * mib, mib}, {3, 0x0c, 6 * mib, mib}, {4, extended, 7 * mib, 7 * mib},
		{5, 0x83, 8 * mib, mib}, {6, 0x83, 10 * mib, mib}, {7, 0x83, 12 * mib, 2 * mib}}
	if got.Signature != 0xfa44a17d || !reflect.DeepEqual(got.Partitions, want) {
		t.Errorf("%+v", got)
	}
	round := card(16)
	round.put(11*mib, 1, 0x05, 0, mib) // the chain leads back to its beginning
	if _, err := Read(round); err == nil {
		t.Error("a chain without an end is read")
	}
	if _, err := Read(&disk{b: make([]byte, 1<<20)}); !errors.Is(err, ErrNone) {
		t.Errorf("no table: %v", err)
	}
}

// Wherever the power goes, the other partitions stay what they are, and the next
// start finishes.
func TestGrow(t *testing.T) {
	before, err := Read(card(16))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; ; cut++ {
		d := card(64)
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
		for i, p := range between.Partitions {
			if p.Number != 4 && p.Number != 7 && p != before.Partitions[i] {
				t.Errorf("after %d writes %+v is %+v", cut, before.Partitions[i], p)
			}
			if p.Number == 7 && p.Start != before.Last().Start {
				t.Errorf("after %d writes data begins at %d", cut, p.Start)
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
		if last := after.Last(); last.Start+last.Size != 64*mib || after.Partitions[3].Start+after.Partitions[3].Size != 64*mib {
			t.Errorf("after %d writes and another start: %+v", cut, after.Partitions)
		}
		if finished {
			if cut != 3 {
				t.Errorf("it takes %d writes", cut)
			}
			return
		}
	}
}

func TestGrowNeverShrinks(t *testing.T) {
	d := card(16)
	if changed, err := Grow(d, 10*mib, nop); err != nil || changed {
		t.Errorf("a disk that ends before its partitions: %t, %v", changed, err)
	}
}

func FuzzGrow(f *testing.F) {
	c := card(16)
	f.Add(c.b[:Sector], c.b[7*mib*Sector:7*mib*Sector+Sector], int64(64*mib))
	f.Fuzz(func(t *testing.T, mbr, ebr []byte, sectors int64) {
		d := card(16)
		copy(d.b[:Sector], mbr)
		copy(d.b[7*mib*Sector:7*mib*Sector+Sector], ebr)
		if sectors < 0 {
			return
		}
		_, _ = Grow(d, sectors, nop)
	})
}
