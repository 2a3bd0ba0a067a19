package fat

import (
	"fmt"
	"io/fs"
	"path"
	"time"
)

// ReadDir lists a directory in the order of its records; "." is the root. Names
// are compared without regard to case.
func (v *Volume) ReadDir(name string) ([]Entry, error) {
	d, err := v.walk(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v.entries(d), nil
}

// Stat finds one file or directory.
func (v *Volume) Stat(name string) (Entry, error) {
	d, err := v.walk(path.Dir(name))
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", name, err)
	}
	e, ok := v.find(d, path.Base(name))
	if !ok {
		return Entry{}, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return e, nil
}

// ReadFile reads a whole file.
func (v *Volume) ReadFile(name string) ([]byte, error) {
	e, err := v.Stat(name)
	if err != nil {
		return nil, err
	}
	if e.Dir || e.Size > maxFile {
		return nil, fmt.Errorf("%s: no file that could be read", name)
	}
	if e.Size == 0 {
		return []byte{}, nil
	}
	chain, err := v.chain(e.cluster)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(chain))*v.unit < e.Size {
		return nil, fmt.Errorf("%s: %w: shorter than its %d bytes", name, ErrFormat, e.Size)
	}
	b, err := v.readChain(chain, e.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// WriteFile makes or replaces a file in a directory that is there. It is part
// of the file system after the next Flush.
func (v *Volume) WriteFile(name string, content []byte, when time.Time) error {
	base := path.Base(name)
	if err := checkName(base); err != nil {
		return err
	}
	d, err := v.walk(path.Dir(name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	old, there := v.find(d, base)
	if there && old.Dir {
		return fmt.Errorf("%s: a directory has this name", name)
	}
	if len(content) > maxFile {
		return fmt.Errorf("%s: %w: %d bytes", name, ErrFull, len(content))
	}
	var chain []uint32
	first := uint32(0)
	if len(content) > 0 {
		if chain, err = v.allocate(v.blocks(int64(len(content)))); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		first = chain[0]
		if err := v.writeChain(chain, content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if there {
		err = v.replace(d, old, first, int64(len(content)), when)
	} else {
		err = v.put(d, base, first, int64(len(content)), attrArchive, when)
	}
	if err != nil {
		v.release(chain)
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// replace points a file's record to new content and frees the old.
func (v *Volume) replace(d *directory, old Entry, first uint32, size int64, when time.Time) error {
	var freed []uint32
	if old.cluster != 0 {
		var err error
		if freed, err = v.chain(old.cluster); err != nil {
			return err
		}
	}
	rec := d.bytes[old.at : old.at+entry]
	created := [4]byte(rec[14:18])
	copy(rec[13:], v.record(old.short, first, size, attrArchive, when)[13:])
	copy(rec[14:18], created[:])
	if err := v.store(d); err != nil {
		return err
	}
	v.release(freed)
	return nil
}

// Remove deletes a file; its content stays where it was until it is overwritten.
func (v *Volume) Remove(name string) error {
	d, err := v.walk(path.Dir(name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	e, ok := v.find(d, path.Base(name))
	switch {
	case !ok:
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case e.Dir:
		return fmt.Errorf("%s is a directory", name)
	}
	var chain []uint32
	if e.cluster != 0 {
		if chain, err = v.chain(e.cluster); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for at := e.from; at <= e.at; at += entry {
		d.bytes[at] = 0xe5
	}
	if err := v.store(d); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	v.release(chain)
	return nil
}

// Mkdir makes a directory in one that is there.
func (v *Volume) Mkdir(name string, when time.Time) error {
	base := path.Base(name)
	if err := checkName(base); err != nil {
		return err
	}
	d, err := v.walk(path.Dir(name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, there := v.find(d, base); there {
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	chain, err := v.allocate(1)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	parent := d.first
	if v.wide && parent == v.rootC {
		parent = 0 // section 6.5
	}
	content := append(v.record(pack(".", ""), chain[0], 0, attrDir, when), v.record(pack("..", ""), parent, 0, attrDir, when)...)
	if err = v.writeChain(chain, content); err == nil {
		err = v.put(d, base, chain[0], 0, attrDir, when)
	}
	if err != nil {
		v.release(chain)
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
