package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"farhand/internal/atomicfile"
	"farhand/provision/preseed"
	"farhand/provision/render"
)

// Outcome is what Boot came to.
type Outcome struct {
	// Restart says why the machine must start once more before it is used; empty
	// if it needn't.
	Restart string
}

// Boot reads the card if that wasn't done, and has the system go by what was
// read. It does what it can whatever fails: a machine that is half configured
// and says so is of more use than one that doesn't start. The error is what
// failed.
func (s *System) Boot(ctx context.Context) (Outcome, error) {
	b := &boot{System: s}
	b.directories()
	b.durability()
	b.load()
	if b.first {
		b.store = store{Serial: b.serial(), Unread: true}
	}
	if card, err := b.look(ctx); !b.failed("look at the card's first partition", err) {
		b.remember(ctx, card)
	}
	restart := b.otherBoard()
	b.claim()
	if restart == "" {
		restart = b.buses(ctx)
	}
	if restart == "" {
		b.system(ctx)
	}
	b.publish()
	return Outcome{Restart: restart}, errors.Join(b.failures...)
}

// boot is one run of Boot.
type boot struct {
	*System
	store    store
	first    bool   // nothing was stored yet
	durable  bool   // what is stored stays
	degraded string // why it doesn't
	notes    []preseed.Item
	failures []error
	claimed  bool // there is a claim key for the daemon
	rendered render.Input
}

// failed notes what didn't work, and goes on.
func (b *boot) failed(doing string, err error) bool {
	if err == nil {
		return false
	}
	b.failures = append(b.failures, fmt.Errorf("%s: %w", doing, err))
	b.Log.Error("provisioning: "+doing, "error", err)
	return true
}

func (b *boot) note(item, outcome, why string) {
	b.notes = append(b.notes, preseed.Item{Item: item, Outcome: outcome, Why: why})
	b.Log.Warn("provisioning", "item", item, "outcome", outcome, "why", why)
}

// directories makes what the image's tmpfiles make, too, in case that failed.
func (b *boot) directories() {
	for _, d := range []struct {
		path     string
		mode     os.FileMode
		uid, gid int
	}{
		{runDir, 0o755, 0, 0},
		{"/data", 0o755, 0, 0},
		{systemData, 0o755, 0, 0},
		{dataDir, 0o750, 0, render.FarhandID},
		{dataDir + "/" + stateName, 0o700, render.FarhandID, render.FarhandID},
		{render.DefaultRoot, os.ModeSetgid | 0o770, render.OperatorID, render.WorkID},
		{render.HomeDir, 0o755, 0, 0},
		{systemData + "/ssh", 0o700, 0, 0},
	} {
		err := b.directory(d.path, d.mode, d.uid, d.gid)
		if d.path == runDir {
			b.failed("directories", err)
		} else if err != nil {
			b.Log.Warn("directories", "error", err) // the data partition's trouble is told once
		}
	}
}

// durability finds out whether anything can be kept (field case 72): the
// initramfs says so if there is no data partition, and a write if it can't be
// written.
func (b *boot) durability() {
	if why := b.read(dataError); why != "" {
		b.degraded = "nothing can be kept: " + why
		b.Log.Error("the data partition can't be used; everything is in memory", "error", why)
		return
	}
	probe := b.path(dataDir, ".probe")
	err := atomicfile.Write(probe, nil, 0o600)
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		b.degraded = "nothing can be kept: the data partition can't be written: " + atomicfile.Why(err)
		b.failed("data partition", err)
		return
	}
	b.durable = true
}

// storePath is where the store is written: in memory if nothing can be kept.
func (b *boot) storePath() string {
	if b.durable {
		return b.path(dataDir, storeName)
	}
	return b.path(runDir, storeName)
}

func (b *boot) load() {
	st, err := loadStore(b.path(dataDir, storeName))
	switch {
	case errors.Is(err, errNoStore):
		b.first = true
	case err != nil:
		// It is written as a whole or not at all, so the disk is at fault. What
		// it said is lost, the card's files are long gone, and pairing goes on.
		b.failed("read what was provisioned", err)
		b.first = true
		if b.durable {
			b.failed("set it aside", setAside(b.path(dataDir, storeName)))
		}
	default:
		b.store = st
	}
}

func (b *boot) save(what string) bool {
	b.at("store: " + what)
	return !b.failed("store "+what, saveStore(b.storePath(), b.store))
}

// remember stores what a new card says, and then cleans it.
func (b *boot) remember(ctx context.Context, c card) {
	unread := b.store.Unread
	if unread {
		b.store.Unread = false
		b.store.Settings, b.store.Report = preseed.Parse(c.files)
		if b.store.Paired { // by its code, before the card could be read
			b.store.Settings.Farhand.ClaimKey = ""
		}
		b.store.Report = append(b.store.Report, strangers(c)...)
		for _, i := range b.store.Report {
			if i.Outcome != preseed.Applied { // the rest stands in the report
				b.Log.Info("card", "item", i.Item, "outcome", i.Outcome, "why", i.Why)
			}
		}
		if !b.save("what the card says") {
			return // the card keeps it for the next start
		}
	}
	shred, remove := c.given, c.harmful
	switch {
	case !b.durable:
		shred = nil // what isn't kept elsewhere is kept there
		if runsScript(c.files.Cmdline) {
			remove = append(remove, cmdlineFile)
		}
	case b.store.Cleaned:
		shred = nil
		for _, name := range c.given {
			if strings.EqualFold(name, cmdlineFile) {
				remove = append(remove, name)
				continue
			}
			b.note(name, preseed.Ignored, "the card's settings are read on the first start only; flash it anew, or remove the file")
		}
	default:
		shred = append(shred, c.foreign...)
	}
	for _, name := range c.harmful {
		if !unread {
			b.note(name, preseed.Removed, "the first partition must have nothing that the firmware takes for a system")
		}
	}
	choice := b.repair(c, b.durable)
	if choice != nil && b.Card != nil {
		b.note(b.choice().file, preseed.Changed, "it was damaged or missing, and is repaired")
	}
	if b.failed("clean the card's first partition", b.clean(ctx, shred, remove, choice)) {
		return // the next start tries again
	}
	if b.durable && !b.store.Cleaned {
		b.store.Cleaned = true
		b.save("that the card is clean")
	}
}

// strangers reports files of other systems, and such as have another name.
func strangers(c card) []preseed.Item {
	all := slices.Clone(c.renamed)
	for _, name := range c.foreign {
		all = append(all, preseed.Item{Item: name, Outcome: preseed.Removed, Why: "it is another system's and was not applied; rpi-preseed.toml and farhand.toml are read"})
	}
	for _, name := range c.harmful {
		all = append(all, preseed.Item{Item: name, Outcome: preseed.Removed, Why: "the first partition must have nothing that the firmware takes for a system"})
	}
	if runsScript(c.files.Cmdline) {
		all = append(all, preseed.Item{Item: cmdlineFile, Outcome: preseed.Removed, Why: "its kernel argument would have run a script that is made for Raspberry Pi OS"})
	}
	return all
}

// serial is the board's serial number; empty if it has none.
func (s *System) serial() string { return strings.ToLower(s.read("/proc/device-tree/serial-number")) }

// otherBoard gives a card that was cloned, or put into another board, an
// identity of its own (field case 79): what the old one was is set aside, and
// the next start makes a machine-id and everything that hangs on it anew.
func (b *boot) otherBoard() (restart string) {
	serial := b.serial()
	if serial == "" || serial == b.store.Serial || !b.durable {
		return ""
	}
	if b.store.Serial == "" { // stored before the board said it
		b.store.Serial = serial
		b.save("the board's serial number")
		return ""
	}
	b.Log.Warn("this card was in another board: it gets an identity of its own, and must be paired anew")
	for _, path := range []string{b.path(dataDir, stateName), b.path(systemData, "ssh"), b.path(systemData, "machine-id"), b.path(systemData, "random-seed")} {
		b.at("set aside " + path)
		if b.failed("set the other board's identity aside", setAside(path)) {
			return "" // rather two of the same than a restart for ever
		}
	}
	// The other board may live on with what is set aside, so the daemon, which
	// reads what its owner offers, has no business there.
	old := b.path(dataDir, stateName+".old-1")
	if err := b.tree().Own(old, 0, 0); !errors.Is(err, fs.ErrNotExist) {
		b.failed("take the other board's state from the daemon", err)
	}
	b.directories()
	b.store.Serial, b.store.Cloned, b.store.Paired, b.store.Handed = serial, true, false, true
	b.store.Settings.Farhand.ClaimKey = "" // one board's alone
	if !b.save("the new identity") {
		return ""
	}
	return "this card was in another board"
}

// claim hands the claim key to the daemon, once: afterwards it stands in the
// daemon's state and nowhere else, until the daemon has used it.
func (b *boot) claim() {
	path := b.stateDir() + "/" + claimName
	if key := b.store.Settings.Farhand.ClaimKey; key != "" && !b.store.Handed {
		b.at("claim key")
		if b.failed("hand over the claim key", b.install(path, []byte(key+"\n"), 0o600, render.FarhandID, render.FarhandID)) {
			return
		}
		if b.durable {
			b.store.Handed, b.store.Settings.Farhand.ClaimKey = true, ""
			b.save("that the claim key is handed over")
		}
	}
	_, err := os.Lstat(b.path(path))
	b.claimed = err == nil
}

// stateDir is the daemon's, in memory if the data partition can't be written.
func (b *boot) stateDir() string {
	if b.durable || b.read(dataError) != "" { // the latter is in memory itself
		return dataDir + "/" + stateName
	}
	path := runDir + "/" + stateName
	if _, err := os.Lstat(b.path(path)); err != nil {
		b.failed("copy the daemon's state to memory", b.copyState(path))
	}
	return path
}

// maxState bounds what is copied to memory.
const maxState = 32 << 20

// copyState copies the files of the daemon's state, so that it still knows who
// it is. What it changes is lost with the power.
func (b *boot) copyState(to string) error {
	if err := b.directory(to, 0o700, render.FarhandID, render.FarhandID); err != nil {
		return err
	}
	from := b.path(dataDir, stateName)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	left := int64(maxState)
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := readLimited(from+"/"+e.Name(), left)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		left -= int64(len(data))
		errs = append(errs, b.install(to+"/"+e.Name(), data, 0o600, render.FarhandID, render.FarhandID))
	}
	return errors.Join(errs...)
}
