package identity

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"farhand/internal/atomicfile"
	"farhand/wire"
)

// idMark tells the ids that we derive from those of other programs.
const idMark = "farhand-machine-id-v1"

const recordName = "machine.json"

// Where an id came from.
const (
	SourceConfig    = "config"     // the configuration names it
	SourceBoard     = "board"      // the board's serial number
	SourceMachineID = "machine-id" // /etc/machine-id
	SourceRandom    = "random"
)

// Options says where to look.
type Options struct {
	StateDir string // holds machine.json; it must exist
	SysRoot  string // the root of /proc, /sys and /etc; "/" if empty
	Override string // an id from the configuration; empty for none
}

// Identity is who this machine is.
type Identity struct {
	MachineID string
	Board     string // the board's model as it names itself, cleaned; may be empty
	Serial    string // the board's serial number; empty if it has none worth the name
	Source    string // one of the Source constants
	// Changed says that the state directory was another board's: its card was
	// cloned or moved. MachineID is a new one then, tokens and grants belong to
	// the old, whose record is kept as machine.json.<n>.
	Changed bool
	BootID  string // changes with every start of the daemon
}

// record is machine.json.
type record struct {
	MachineID string `json:"machine_id"`
	Source    string `json:"source"`
	Serial    string `json:"serial,omitempty"` // the board that it belongs to
	Board     string `json:"board,omitempty"`
}

// MachineID finds out who this machine is, and remembers it. Errors: an Override
// that the protocol can't carry, or a state directory that can't be written.
func MachineID(ctx context.Context, o Options) (Identity, error) {
	if err := ctx.Err(); err != nil {
		return Identity{}, context.Cause(ctx)
	}
	root := o.SysRoot
	if root == "" {
		root = "/"
	}
	id := Identity{Board: boardModel(root), Serial: boardSerial(root), BootID: randomUUID()}
	if o.Override != "" {
		if !validID(o.Override) {
			return Identity{}, fmt.Errorf("machine_id %q: it must be 1 to %d letters, digits and \"._:-\", a letter or digit first", o.Override, wire.MaxMachineID)
		}
		id.MachineID, id.Source = o.Override, SourceConfig
		return id, nil
	}
	path := filepath.Join(o.StateDir, recordName)
	old, err := readRecord(path)
	if err != nil {
		return Identity{}, fmt.Errorf("machine id: %w", err)
	}
	want := id.resolve(old, root)
	if old == nil || *old != want {
		if err := want.store(path, old != nil && old.MachineID == want.MachineID); err != nil {
			return Identity{}, fmt.Errorf("machine id: %w", err)
		}
	}
	return id, nil
}

// resolve decides on id's machine id, given what was remembered, and returns what
// to remember.
func (id *Identity) resolve(old *record, root string) record {
	switch {
	case old == nil:
		id.MachineID, id.Source = derive(id.Serial, root)
	case id.Serial != "" && old.Serial != "" && old.Serial != id.Serial:
		id.MachineID, id.Source = derive(id.Serial, root)
		id.Changed = true
	default:
		id.MachineID, id.Source = old.MachineID, old.Source
	}
	r := record{MachineID: id.MachineID, Source: id.Source, Serial: id.Serial, Board: id.Board}
	if old != nil && !id.Changed { // what can't be read today was still true yesterday
		if r.Serial == "" {
			r.Serial = old.Serial
		}
		if r.Board == "" {
			r.Board = old.Board
		}
	}
	return r
}

func derive(serial, root string) (id, source string) {
	if serial != "" {
		h := sha256.New()
		h.Write([]byte(idMark))
		h.Write([]byte{0})
		h.Write([]byte(serial))
		return formatUUID(h.Sum(nil)), SourceBoard
	}
	if key := systemMachineID(root); key != nil {
		// Keyed by the id, as systemd's application-specific ids are, so that
		// what we send doesn't give it away.
		m := hmac.New(sha256.New, key)
		m.Write([]byte(idMark))
		return formatUUID(m.Sum(nil)), SourceMachineID
	}
	return randomUUID(), SourceRandom
}

// maxRecord is far above what is written there: a file that is longer was
// written by somebody else.
const maxRecord = 64 << 10

// readRecord returns nil if there is no record, or none that can be used.
func readRecord(path string) (*record, error) {
	b, err := atomicfile.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if json.Unmarshal(b, &r) != nil || !validID(r.MachineID) {
		return nil, nil
	}
	return &r, nil
}

// store writes r; what stands there is kept under another name unless it is of
// the same machine.
func (r record) store(path string, same bool) error {
	if !same {
		if err := keepAside(path); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'), 0o600)
}

func keepAside(path string) error {
	b, err := atomicfile.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := atomicfile.Create(fmt.Sprintf("%s.%d", path, n), b, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// boardSerial is the serial number in the device tree, or empty. The DMI of a PC
// has one too, but only root may read it, and the id must not depend on who asks.
func boardSerial(root string) string {
	for _, name := range []string{"proc/device-tree/serial-number", "sys/firmware/devicetree/base/serial-number"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		b, _, _ = bytes.Cut(b, []byte{0})
		if s := strings.ToLower(strings.TrimSpace(string(b))); usable(s) {
			return s
		}
	}
	return ""
}

var serialForm = regexp.MustCompile(`^[0-9a-z][0-9a-z ._:/+-]{3,63}$`)

// usable tells a serial number from what stands in its place on boards that
// were never given one.
func usable(serial string) bool {
	if !serialForm.MatchString(serial) {
		return false
	}
	if strings.Count(serial, serial[:1]) == len(serial) { // 0000…, ffff…
		return false
	}
	for _, dummy := range []string{"none", "unknown", "undefined", "default", "empty", "serial", "to be filled by o.e.m."} {
		if serial == dummy {
			return false
		}
	}
	const hexadecimal, decimal = "0123456789abcdef0123456789abcdef", "01234567890123456789"
	return !strings.Contains(hexadecimal, serial) && !strings.Contains(decimal, serial) // 12345678, …
}

func boardModel(root string) string {
	for _, name := range []string{
		"proc/device-tree/model", "sys/firmware/devicetree/base/model", "sys/class/dmi/id/product_name",
	} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		b, _, _ = bytes.Cut(b, []byte{0})
		if s := wire.Clean(string(b), wire.MaxDeviceString); s != "" {
			return s
		}
	}
	return ""
}

// systemMachineID is the id of the installation, or nil.
func systemMachineID(root string) []byte {
	for _, name := range []string{"etc/machine-id", "var/lib/dbus/machine-id"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		id, err := hex.DecodeString(strings.TrimSpace(string(b)))
		if err == nil && len(id) == 16 && !bytes.Equal(id, make([]byte, 16)) {
			return id
		}
	}
	return nil
}

func randomUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return formatUUID(b[:])
}

// formatUUID is the first 16 bytes of b as a version 4 UUID (RFC 9562).
func formatUUID(b []byte) string {
	u := [16]byte(b[:16])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

func validID(id string) bool {
	return len(id) <= wire.MaxMachineID && idForm.MatchString(id)
}
