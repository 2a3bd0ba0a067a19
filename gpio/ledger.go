package gpio

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"farhand/internal/atomicfile"
	"farhand/internal/sorted"
	"farhand/wire"
)

// Entry is what has to be known about an output when the daemon starts again:
// what becomes of it now that its lease is over.
type Entry struct {
	Device    string           `json:"device"`
	Line      int              `json:"line"`
	OnRelease wire.GPIORelease `json:"on_release"`

	// How it was requested.
	ActiveLow bool   `json:"active_low,omitempty"`
	Drive     string `json:"drive,omitempty"`
	Pull      string `json:"pull,omitempty"`

	// FD is the name of its request in the FDStore, Bit its place in it.
	FD  string `json:"fd,omitempty"`
	Bit int    `json:"bit,omitempty"`

	// PWM is the device of a hardware PWM that drives it, and Channel which of
	// that device's.
	PWM     string `json:"pwm,omitempty"`
	Channel int    `json:"channel,omitempty"`
}

func (e Entry) key() entryKey { return entryKey{e.Device, e.Line} }

type entryKey struct {
	device string
	line   int
}

// Ledger is a durable list of outputs: whatever was answered is on the disk, and
// a crash at any moment leaves the list before or after a change. It may be used
// concurrently.
type Ledger struct {
	path string

	mu      sync.Mutex
	entries map[entryKey]Entry
	behind  bool // the file hasn't what entries has
}

// maxLedger bounds the file: some 10000 entries.
const maxLedger = 4 << 20

// ledgerFile is what stands in the file.
type ledgerFile struct {
	Version int     `json:"version"` // 1
	Outputs []Entry `json:"outputs"`
}

// OpenLedger reads a ledger, or makes an empty one if there is none. A file that
// isn't one is put aside, as path.bad, and reported beside an empty ledger: that
// lines are forgotten is no reason not to start.
func OpenLedger(path string) (*Ledger, error) {
	l := &Ledger{path: path, entries: make(map[entryKey]Entry)}
	if err := atomicfile.RemoveStale(path); err != nil {
		return l, fmt.Errorf("ledger of outputs: %w", err)
	}
	data, err := atomicfile.Read(path, maxLedger)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	var f ledgerFile
	if err == nil {
		f, err = parseLedger(data)
	}
	if err != nil {
		return l, errors.Join(fmt.Errorf("ledger of outputs %s: %w", path, err), os.Rename(path, path+".bad"))
	}
	for _, e := range f.Outputs {
		l.entries[e.key()] = e
	}
	return l, nil
}

func parseLedger(data []byte) (ledgerFile, error) {
	var f ledgerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return f, err
	}
	if f.Version != 1 {
		return f, fmt.Errorf("version %d isn't known", f.Version)
	}
	for _, e := range f.Outputs {
		switch e.OnRelease {
		case wire.GPIOHold, wire.GPIOInput, wire.GPIOLow, wire.GPIOHigh:
		default:
			return f, fmt.Errorf("line %d of %q has no on_release", e.Line, e.Device)
		}
		if e.Device == "" || e.Line < 0 || e.Bit < 0 || e.Bit >= MaxLines || e.Channel < 0 {
			return f, fmt.Errorf("line %d of %q makes no sense", e.Line, e.Device)
		}
	}
	return f, nil
}

// Entries are the outputs of a device, or of all for "", in order.
func (l *Ledger) Entries(device string) []Entry {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list(device)
}

func (l *Ledger) list(device string) []Entry {
	all := []Entry{}
	for _, e := range l.entries {
		if device == "" || e.Device == device {
			all = append(all, e)
		}
	}
	sorted.By(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Line, b.Line))
	})
	return all
}

// Put adds or replaces entries. They are durable when it returns nil.
func (l *Ledger) Put(entries ...Entry) error {
	return l.change(func() (changed bool) {
		for _, e := range entries {
			if old, ok := l.entries[e.key()]; !ok || old != e {
				l.entries[e.key()] = e
				changed = true
			}
		}
		return changed
	})
}

// Remove forgets lines of a device.
func (l *Ledger) Remove(device string, lines ...int) error {
	return l.change(func() (changed bool) {
		for _, n := range lines {
			k := entryKey{device, n}
			if _, ok := l.entries[k]; ok {
				delete(l.entries, k)
				changed = true
			}
		}
		return changed
	})
}

// change writes the file if f has changed something, or if the last change
// couldn't be written. A failure is HARDWARE_OPEN_FAILED or DISK_FULL.
func (l *Ledger) change(f func() bool) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !f() && !l.behind {
		return nil
	}
	data, err := json.Marshal(ledgerFile{Version: 1, Outputs: l.list("")})
	if err == nil {
		err = atomicfile.Write(l.path, data, 0o600)
	}
	if l.behind = err != nil; l.behind {
		code := wire.HardwareOpenFailed
		if atomicfile.Full(err) {
			code = wire.DiskFull
		}
		return wire.Errorf(code, "what becomes of an output at the end can't be written down: %s", atomicfile.Why(err)).
			With("hint", "the daemon's state directory must be writable, and have room")
	}
	return nil
}
