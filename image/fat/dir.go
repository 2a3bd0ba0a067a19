package fat

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

const (
	attrVolume  = 0x08
	attrDir     = 0x10
	attrArchive = 0x20
	attrLong    = 0x0f
)

// Entry is a file or directory as its directory lists it.
type Entry struct {
	Name    string
	Short   string // the name of 8 and 3 characters, as a boot ROM looks for it
	Dir     bool
	Size    int64
	ModTime time.Time // UTC, to 2 s

	short   [11]byte
	cluster uint32
	from    int // first byte of its records in the directory
	at      int // its short record
}

// directory is one as it is on the disk.
type directory struct {
	first uint32 // 0: FAT16's root
	chain []uint32
	bytes []byte
}

// load reads the directory whose records begin in cluster first.
func (v *Volume) load(first uint32) (*directory, error) {
	d := &directory{first: first}
	if first == 0 && !v.wide {
		d.bytes = make([]byte, v.rootN)
		return d, v.readAt(d.bytes, v.root)
	}
	if first == 0 {
		d.first = v.rootC
	}
	var err error
	if d.chain, err = v.chain(d.first); err != nil {
		return nil, err
	}
	size := int64(len(d.chain)) * v.unit
	if size > maxDir {
		return nil, fmt.Errorf("%w: a directory of %d bytes", ErrFormat, size)
	}
	d.bytes, err = v.readChain(d.chain, size)
	return d, err
}

// store writes a directory back.
func (v *Volume) store(d *directory) error {
	if d.chain == nil {
		return v.writeAt(d.bytes, v.root)
	}
	return v.writeChain(d.chain, d.bytes)
}

// entries lists a directory but for ".", ".." and the volume's label.
func (v *Volume) entries(d *directory) []Entry {
	var (
		all  []Entry
		name long
		from = -1
	)
	for at := 0; at+entry <= len(d.bytes); at += entry {
		rec := d.bytes[at : at+entry]
		switch {
		case rec[0] == 0:
			return all
		case rec[0] == 0xe5:
			name, from = long{}, -1
			continue
		case rec[11]&0x3f == attrLong:
			if from < 0 || rec[0]&0x40 != 0 {
				from = at
			}
			name.add(rec)
			continue
		case rec[11]&attrVolume != 0, rec[0] == '.':
			name, from = long{}, -1
			continue
		}
		e := Entry{short: [11]byte(rec[:11]), at: at, from: at, Short: shown(plainCase(rec)), Name: shown(rec)}
		if long, ok := name.name(e.short); ok {
			e.Name = long
			e.from = from
		}
		e.Dir = rec[11]&attrDir != 0
		e.Size = int64(binary.LittleEndian.Uint32(rec[28:]))
		e.cluster = uint32(binary.LittleEndian.Uint16(rec[26:]))
		if v.wide {
			e.cluster |= uint32(binary.LittleEndian.Uint16(rec[20:])) << 16
		}
		e.ModTime = fromDOS(binary.LittleEndian.Uint16(rec[24:]), binary.LittleEndian.Uint16(rec[22:]))
		all = append(all, e)
		name, from = long{}, -1
	}
	return all
}

func plainCase(rec []byte) []byte {
	b := append([]byte{}, rec[:13]...)
	b[12] = 0
	return b
}

// find looks a name up, without regard to case.
func (v *Volume) find(d *directory, name string) (Entry, bool) {
	for _, e := range v.entries(d) {
		if strings.EqualFold(e.Name, name) || strings.EqualFold(e.Short, name) {
			return e, true
		}
	}
	return Entry{}, false
}

// walk finds the directory that a slash-separated path names.
func (v *Volume) walk(path string) (*directory, error) {
	d, err := v.load(0)
	if err != nil || path == "." || path == "" {
		return d, err
	}
	for name := range strings.SplitSeq(path, "/") {
		e, ok := v.find(d, name)
		if !ok {
			return nil, fs.ErrNotExist
		}
		if !e.Dir {
			return nil, fmt.Errorf("%s is no directory: %w", name, fs.ErrNotExist)
		}
		if d, err = v.load(e.cluster); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// put adds a record with its long name; the directory grows if it must.
func (v *Volume) put(d *directory, name string, cluster uint32, size int64, attr byte, when time.Time) error {
	short, err := v.shortFor(d, name)
	if err != nil {
		return err
	}
	var recs []byte
	if !fits(name) {
		recs = longRecords(name, short)
	}
	recs = append(recs, v.record(short, cluster, size, attr, when)...)
	at, err := v.room(d, len(recs))
	if err != nil {
		return err
	}
	copy(d.bytes[at:], recs)
	return v.store(d)
}

func (v *Volume) shortFor(d *directory, name string) ([11]byte, error) {
	taken := make(map[[11]byte]bool)
	for _, e := range v.entries(d) {
		taken[e.short] = true
	}
	return shortName(name, func(b [11]byte) bool { return taken[b] })
}

func (v *Volume) record(short [11]byte, cluster uint32, size int64, attr byte, when time.Time) []byte {
	b := make([]byte, entry)
	le := binary.LittleEndian
	copy(b, short[:])
	b[11] = attr
	date, clock := dosTime(when)
	le.PutUint16(b[14:], clock)
	le.PutUint16(b[16:], date)
	le.PutUint16(b[18:], date)
	le.PutUint16(b[22:], clock)
	le.PutUint16(b[24:], date)
	le.PutUint32(b[28:], uint32(size))
	v.setCluster(b, cluster)
	return b
}

func (v *Volume) setCluster(rec []byte, cluster uint32) {
	binary.LittleEndian.PutUint16(rec[26:], uint16(cluster))
	if v.wide {
		binary.LittleEndian.PutUint16(rec[20:], uint16(cluster>>16))
	}
}

// room finds n bytes of free records in a row.
func (v *Volume) room(d *directory, n int) (int, error) {
	free := 0
	for at := 0; at+entry <= len(d.bytes); at += entry {
		if d.bytes[at] != 0 && d.bytes[at] != 0xe5 {
			free = 0
			continue
		}
		if free += entry; free == n {
			return at + entry - n, nil
		}
	}
	if d.chain == nil {
		return 0, fmt.Errorf("%w: the root directory has no room", ErrFull)
	}
	if len(d.bytes)+int(v.unit) > maxDir {
		return 0, fmt.Errorf("%w: the directory has no room", ErrFull)
	}
	more, err := v.allocate(max(1, v.blocks(int64(n-free))))
	if err != nil {
		return 0, err
	}
	v.table[d.chain[len(d.chain)-1]] = more[0]
	d.chain = append(d.chain, more...)
	at := len(d.bytes) - free
	d.bytes = append(d.bytes, make([]byte, int64(len(more))*v.unit)...)
	return at, nil
}

// dosTime rounds down to 2 s; the format begins with 1980.
func dosTime(t time.Time) (date, clock uint16) {
	t = t.UTC()
	if t.Year() < 1980 {
		t = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return uint16(t.Year()-1980)<<9 | uint16(t.Month())<<5 | uint16(t.Day()),
		uint16(t.Hour())<<11 | uint16(t.Minute())<<5 | uint16(t.Second()/2)
}

func fromDOS(date, clock uint16) time.Time {
	return time.Date(1980+int(date>>9), time.Month(date>>5&15), int(date&31),
		int(clock>>11), int(clock>>5&63), int(clock&31)*2, 0, time.UTC)
}
