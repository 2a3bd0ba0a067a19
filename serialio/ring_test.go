package serialio

import (
	"bytes"
	"testing"
)

// FuzzRing puts bytes in, in pieces of any size, and compares with a plain slice.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 255, 16, 16, 7}, uint16(3))
	f.Add(bytes.Repeat([]byte{255}, 300), uint16(9))
	f.Fuzz(func(t *testing.T, sizes []byte, skip uint16) {
		var r ring
		var all []byte
		for _, s := range sizes[:min(len(sizes), 1000)] {
			for left := int(s) * 16; left > 0; {
				room := r.room()
				if len(room) == 0 {
					t.Fatal("no room")
				}
				n := min(left, len(room))
				for i := range n {
					room[i] = byte(len(all) ^ len(all)>>8)
					all = append(all, room[i])
				}
				r.add(n)
				left -= n
			}
			if r.next != int64(len(all)) || r.held > RingSize || r.held < min(len(all), RingSize-chunk) {
				t.Fatalf("after %d bytes: next %d, held %d", len(all), r.next, r.held)
			}
		}
		from := min(r.oldest()+int64(skip), r.next)
		if got := r.read(nil, from, len(all)); !bytes.Equal(got, all[from:]) {
			t.Fatalf("from %d: %d bytes differ from what was put in", from, len(got))
		}
		if got := r.read(nil, from, 5); len(got) > 5 || !bytes.HasPrefix(all[from:], got) {
			t.Fatalf("asked for 5 bytes, got %q", got)
		}
	})
}

func TestRingGrows(t *testing.T) {
	var r ring
	copy(r.room(), "x")
	r.add(1)
	if len(r.buf) != chunk {
		t.Errorf("one byte takes %d", len(r.buf))
	}
	for range 3 * RingSize / chunk {
		r.add(len(r.room()))
	}
	if len(r.buf) != RingSize || r.held < RingSize-chunk {
		t.Errorf("a full ring has %d bytes, %d of them in use", len(r.buf), r.held)
	}
}
