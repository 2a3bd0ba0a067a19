package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"farhand/internal/atomicfile"
	"farhand/provision/preseed"
)

// store is provision.json: what this card was given, and how far that has come.
type store struct {
	Version  int              `json:"version"`
	Serial   string           `json:"serial,omitempty"` // of the board that the card was in
	Settings preseed.Settings `json:"settings"`
	Report   []preseed.Item   `json:"report,omitempty"` // what became of each setting
	// Unread says that the card could not be looked at yet: a later start reads
	// what the owner put there.
	Unread bool `json:"unread,omitempty"`
	// Cleaned says that nothing of what was read is left on the card. Files that
	// appear after that are somebody's second thought, and not applied.
	Cleaned bool `json:"cleaned,omitempty"`
	// Handed says that the claim key was given to the daemon, once for all.
	Handed bool `json:"handed,omitempty"`
	Paired bool `json:"paired,omitempty"` // it has had an owner
	// Network is what was entered on the rescue network's page; it counts over
	// the card's.
	Network *network `json:"network,omitempty"`
	// Before are the networks of before the owner's last change of them, until the
	// relay was reached with the new ones. WifiChange is what became of that, as
	// wire has it.
	Before     *networks `json:"before,omitempty"`
	WifiChange string    `json:"wifi_change,omitempty"`
	// Passphrase is the rescue network's, where the card had none.
	Passphrase string `json:"passphrase,omitempty"`
	// Cloned says that the card came from another board and hasn't been paired
	// on this one.
	Cloned bool `json:"cloned,omitempty"`
	// Buses is for which slot and content the buses' file was last written, and
	// BusTries how often it was and still isn't there: a boot partition that
	// keeps nothing must not have the machine restart for ever.
	Buses    string `json:"buses,omitempty"`
	BusTries int    `json:"bus_tries,omitempty"`
}

type network struct {
	Wifi    preseed.Wifi `json:"wifi"`
	Country string       `json:"country"`
}

// storeVersion is of the format. A newer one is not touched: the other slot's
// system may have written it.
const storeVersion = 1

// maxStore bounds provision.json: settings of at most three files, and reports.
const maxStore = 1 << 20

// errNoStore says that this card was never provisioned.
var errNoStore = errors.New("not provisioned yet")

// loadStore reads the store at a path on this machine.
func loadStore(path string) (store, error) {
	b, err := readLimited(path, maxStore)
	if errors.Is(err, fs.ErrNotExist) {
		return store{}, errNoStore
	}
	if err != nil {
		return store{}, err
	}
	var st store
	if err := json.Unmarshal(b, &st); err != nil {
		return store{}, fmt.Errorf("%s: %w", path, err)
	}
	return st, nil
}

func saveStore(path string, st store) error {
	st.Version = max(st.Version, storeVersion)
	b, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'), 0o600)
}

// effective are the settings with what was entered later.
func (st store) effective() preseed.Settings {
	s := st.Settings
	if st.Network != nil {
		s.Wifi, s.MoreWifi, s.Country = &st.Network.Wifi, nil, st.Network.Country
	}
	return s
}

// setAside renames a file or directory to one with a number behind it, of which
// the newest three are kept. One that isn't there, or is an empty directory, is
// left alone: it was set aside before the power failed.
func setAside(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		if entries, err := os.ReadDir(path); err == nil && len(entries) == 0 {
			return nil
		}
	}
	const keep = 3
	for n := keep; n >= 1; n-- {
		name := fmt.Sprintf("%s.old-%d", path, n)
		if n == keep {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
			continue
		}
		if err := os.Rename(name, fmt.Sprintf("%s.old-%d", path, n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(path, path+".old-1"); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
