package fat

import (
	"encoding/binary"
	"fmt"
)

func (v *Volume) readTable() error {
	b := make([]byte, v.span)
	if err := v.readAt(b, v.start); err != nil {
		return fmt.Errorf("allocation table: %w", err)
	}
	for i := range v.table {
		if v.wide {
			v.table[i] = binary.LittleEndian.Uint32(b[i*4:]) & mask28
			if v.table[i] >= 0x0ffffff8 {
				v.table[i] = end
			}
		} else {
			v.table[i] = uint32(binary.LittleEndian.Uint16(b[i*2:]))
			if v.table[i] >= 0xfff8 {
				v.table[i] = end
			}
		}
	}
	return nil
}

// Flush writes the table. Until then what was written isn't part of the file
// system.
func (v *Volume) Flush() error {
	if !v.dirty {
		return nil
	}
	b := make([]byte, v.span)
	for i, e := range v.table {
		if v.wide {
			binary.LittleEndian.PutUint32(b[i*4:], e&mask28)
		} else {
			binary.LittleEndian.PutUint16(b[i*2:], uint16(e))
		}
	}
	// The first two entries hold the medium's kind and that all is well.
	if v.wide {
		binary.LittleEndian.PutUint32(b, 0x0ffffff8)
		binary.LittleEndian.PutUint32(b[4:], mask28)
	} else {
		binary.LittleEndian.PutUint16(b, 0xfff8)
		binary.LittleEndian.PutUint16(b[2:], 0xffff)
	}
	for i := range v.fats {
		if err := v.writeAt(b, v.start+i*v.span); err != nil {
			return fmt.Errorf("allocation table: %w", err)
		}
	}
	if v.info > 0 {
		if err := v.writeAt(v.infoSector(), v.info); err != nil {
			return fmt.Errorf("count of free clusters: %w", err)
		}
	}
	v.dirty = false
	return nil
}

// infoSector is FAT32's FSInfo (section 5).
func (v *Volume) infoSector() []byte {
	b := make([]byte, sector)
	le := binary.LittleEndian
	le.PutUint32(b, 0x41615252)
	le.PutUint32(b[484:], 0x61417272)
	le.PutUint32(b[488:], v.free())
	le.PutUint32(b[492:], v.next)
	le.PutUint32(b[508:], 0xaa550000)
	return b
}

// chain lists the clusters of a file that begins at first.
func (v *Volume) chain(first uint32) ([]uint32, error) {
	var all []uint32
	for c := first; c != end; c = v.table[c] {
		if c < 2 || int(c) >= len(v.table) || len(all) > len(v.table) {
			return nil, fmt.Errorf("%w: a chain of clusters leads to %d", ErrFormat, c)
		}
		all = append(all, c)
	}
	return all, nil
}

// allocate takes n free clusters and chains them.
func (v *Volume) allocate(n int) ([]uint32, error) {
	all := make([]uint32, 0, n)
	for i := range len(v.table) - 2 {
		if len(all) == n {
			break
		}
		c := (v.next-2+uint32(i))%uint32(len(v.table)-2) + 2
		if v.table[c] == 0 {
			all = append(all, c)
		}
	}
	if len(all) < n {
		return nil, fmt.Errorf("%w: %d clusters wanted, %d free", ErrFull, n, len(all))
	}
	for i, c := range all {
		v.table[c] = end
		if i > 0 {
			v.table[all[i-1]] = c
		}
		v.next = c
	}
	v.dirty = true
	return all, nil
}

// release frees a chain. Later allocations fill from the beginning again.
func (v *Volume) release(all []uint32) {
	for _, c := range all {
		v.table[c] = 0
		v.dirty = true
	}
}

// writeChain writes content over the clusters, the last one filled with zeros.
func (v *Volume) writeChain(all []uint32, content []byte) error {
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j] == all[j-1]+1 {
			j++
		}
		from, to := int64(i)*v.unit, int64(j)*v.unit
		part := content[min(from, int64(len(content))):min(to, int64(len(content)))]
		if missing := to - from - int64(len(part)); missing > 0 {
			part = append(part[:len(part):len(part)], make([]byte, missing)...)
		}
		if err := v.writeAt(part, v.at(all[i])); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// readChain reads the first size bytes that the clusters hold.
func (v *Volume) readChain(all []uint32, size int64) ([]byte, error) {
	b := make([]byte, size)
	for i, c := range all {
		from := int64(i) * v.unit
		if from >= size {
			break
		}
		if err := v.readAt(b[from:min(from+v.unit, size)], v.at(c)); err != nil {
			return nil, err
		}
	}
	return b, nil
}
