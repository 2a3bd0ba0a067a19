package provision

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"farhand/provision/fat"
	"farhand/provision/render"
)

// Paths of the appliance.
const (
	runDir      = render.Dir                         // in memory
	dataDir     = "/data/farhand"                    // of the daemon and of this package
	systemData  = "/data/system"                     // of the system: machine-id, host keys, clock
	storeName   = "provision.json"                   // in dataDir, or in runDir without durable data
	stateName   = "state"                            // the daemon's, likewise
	claimName   = "claim-key"                        // in the daemon's state
	slotFile    = runDir + "/slot"                   // by the initramfs: slot=a and the like
	dataError   = runDir + "/data-error"             // by the initramfs: why there is no data partition
	bootFile    = runDir + "/boot.json"              // by Boot, for Serve
	defaultFile = "/usr/share/farhand/defaults.toml" // of the image: as farhand.toml, the card's own counts over it
)

// System is the machine that is provisioned. Every field has a default that is
// the real thing, but for the volumes, which Open finds.
type System struct {
	// Root is the directory below which all paths lie; empty: /.
	Root string
	Log  *slog.Logger
	// Card is the small partition that people put files on, and Slot that of the
	// running slot; nil where they can't be found.
	Card, Slot fat.Volume
	// Chown gives files to users; nil: os.Lchown.
	Chown func(path string, uid, gid int) error
	// Run runs a program of the image to its end; nil: really.
	Run func(ctx context.Context, name string, args ...string) error
	// Free is how much room there is where a path lies, bytes; nil: statfs(2).
	Free func(path string) (int64, error)
	// SetHostname is sethostname(2).
	SetHostname func(name string) error
	// Clock is the system's.
	Clock Clock

	// step is called before each thing that lasts; tests end the boot there.
	step func(what string)
}

// path is where a file of the system lies.
func (s *System) path(elements ...string) string {
	return s.tree().Path(filepath.Join(elements...))
}

func (s *System) tree() render.Tree { return render.Tree{Root: s.Root, Chown: s.Chown} }

// at marks a moment at which the power may fail.
func (s *System) at(what string) {
	if s.step != nil {
		s.step(what)
	}
}

// directory makes a directory unless it is there, with that owner and mode.
func (s *System) directory(path string, mode os.FileMode, uid, gid int) error {
	full := s.path(path)
	err := os.Mkdir(full, 0o700)
	if os.IsExist(err) {
		return nil
	}
	if err == nil {
		err = s.tree().Own(full, uid, gid)
	}
	if err == nil {
		err = os.Chmod(full, mode)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// read is a small file's content, trimmed; empty if it can't be read.
func (s *System) read(path string) string {
	b, err := readLimited(s.path(path), 64<<10)
	if err != nil {
		return ""
	}
	return trim(b)
}
