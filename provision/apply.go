package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"farhand/internal/atomicfile"
	"farhand/provision/fat"
	"farhand/provision/hardware"
	"farhand/provision/preseed"
	"farhand/provision/render"
	"farhand/provision/rescue"
	"farhand/systemd/units"
)

// system has the system go by the store.
func (b *boot) system(ctx context.Context) {
	if b.store.Passphrase == "" && b.store.Settings.Farhand.RescuePassphrase == "" {
		b.store.Passphrase = rescue.NewPassphrase()
		b.save("the rescue network's passphrase")
	}
	in := b.input(b.store)
	in.StateDir = b.stateDir()
	if b.claimed {
		in.ClaimKeyFile = in.StateDir + "/" + claimName
	}
	b.private(&in)
	b.roots(&in)
	r, err := b.render(in)
	b.failed("render", err)
	b.notes = append(b.notes, r.Notes...)
	b.failed("the radio", b.radio(in.Settings))
	b.home(r.Person)
	if in.Settings.Farhand.OperatorSudo {
		b.failed("have the service manager read that commands may become root", b.run(ctx, "systemctl", "daemon-reload"))
	}
	if r.SSH {
		b.failed("start the SSH server", b.startSSH(ctx, r.Hostname))
	}
	b.rendered = in
}

// render writes what the system goes by, and sets its name.
func (s *System) render(in render.Input) (render.Result, error) {
	r := render.All(in)
	drop, err := sudoDropIn(in)
	return r, errors.Join(err, s.tree().Write(append(r.Files, drop...)), s.SetHostname(r.Hostname))
}

// input is what is rendered of a store.
func (s *System) input(st store) render.Input {
	settings := st.effective()
	settings.Farhand = s.withDefaults(settings.Farhand)
	return render.Input{
		Settings: settings, Serial: s.serial(), MachineID: s.read("/etc/machine-id"),
		StateDir: dataDir + "/" + stateName,
		Groups:   s.names("/etc/group"), Users: s.names("/etc/passwd"),
		Zone: s.zone,
	}
}

// zone says whether the image knows a time zone.
func (s *System) zone(name string) bool {
	info, err := os.Stat(s.path("/usr/share/zoneinfo", name))
	return err == nil && info.Mode().IsRegular()
}

// withDefaults adds what the image's builder wanted where the card says nothing.
func (s *System) withDefaults(f preseed.Farhand) preseed.Farhand {
	b, err := readLimited(s.path(defaultFile), preseed.MaxFile)
	if err != nil {
		return f
	}
	d, _ := preseed.Parse(preseed.Files{Farhand: b})
	if f.Relay == "" { // a CA belongs to its relay
		f.Relay, f.CASHA256 = d.Farhand.Relay, d.Farhand.CASHA256
	}
	return f
}

// roots makes the directories that are offered. One that can't be there is left
// out: the daemon refuses to start with it.
func (b *boot) roots(in *render.Input) {
	if in.Settings.Farhand.Roots == nil {
		return
	}
	good := []string{}
	for _, dir := range in.Settings.Farhand.Roots {
		if strings.HasPrefix(dir, render.DefaultRoot+"/") {
			if err := b.root(dir); err != nil {
				b.note("farhand.toml roots", preseed.Refused, "a directory of it can't be made: "+atomicfile.Why(err))
				continue
			}
		}
		if info, err := os.Stat(b.path(dir)); err != nil || !info.IsDir() {
			b.note("farhand.toml roots", preseed.Refused, "a directory of it isn't there; those below "+render.DefaultRoot+" are made")
			continue
		}
		good = append(good, dir)
	}
	in.Settings.Farhand.Roots = good
}

// private makes the directories below PrivateRoot that are to be private. They are
// the daemon's user's alone, and so is what lies above them.
func (b *boot) private(in *render.Input) {
	for _, entry := range in.Settings.Farhand.Private {
		dir, _, _ := strings.Cut(entry, ";")
		dir = filepath.Clean(dir)
		if dir != render.PrivateRoot && !strings.HasPrefix(dir, render.PrivateRoot+"/") || strings.ContainsAny(dir, "*?[") {
			continue
		}
		if err := b.privateDir(dir); err != nil {
			b.note("farhand.toml privacy.private", preseed.Changed, "a directory of it can't be made: "+atomicfile.Why(err))
		}
	}
}

func (b *boot) privateDir(dir string) error {
	top, err := os.OpenRoot(b.path("/data"))
	if err != nil {
		return err
	}
	defer top.Close()
	at := ""
	for element := range strings.SplitSeq(strings.TrimPrefix(dir, "/data/"), "/") {
		at = filepath.Join(at, element)
		err := top.Mkdir(at, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil && b.Chown == nil {
			err = top.Lchown(at, render.FarhandID, render.FarhandID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// root makes a directory below the default root, which commands may write: none
// of its elements may be a link out of it.
func (b *boot) root(dir string) error {
	top, err := os.OpenRoot(b.path(render.DefaultRoot))
	if err != nil {
		return err
	}
	defer top.Close()
	at := ""
	for element := range strings.SplitSeq(strings.TrimPrefix(dir, render.DefaultRoot+"/"), "/") {
		at = filepath.Join(at, element)
		err := top.Mkdir(at, 0o770)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if b.Chown == nil {
			err = top.Lchown(at, render.OperatorID, render.WorkID)
		}
		if err == nil {
			err = top.Chmod(at, os.ModeSetgid|0o770)
		}
		if err != nil {
			return err
		}
	}
	// What stood there already may be a command's link to anywhere.
	info, err := top.Stat(at)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

// sudoDropIn lets commands become root in the eyes of the service manager; what
// sudo lets them is in sudoers.
func sudoDropIn(in render.Input) ([]render.File, error) {
	if !in.Settings.Farhand.OperatorSudo {
		return nil, nil
	}
	f, err := units.SudoDropIn()
	if err != nil {
		return nil, fmt.Errorf("let commands become root: %w", err)
	}
	return []render.File{{Path: filepath.Join("/run/systemd/system", f.Path), Data: []byte(f.Content), Mode: 0o644}}, nil
}

// home makes the home of who may log in.
func (b *boot) home(p *preseed.User) {
	if p != nil && b.durable {
		b.failed("home", b.directory(render.HomeDir+"/"+p.Name, 0o750, render.PersonID, render.PersonID))
	}
}

// hostKey is what the image's sshd looks for.
const hostKey = systemData + "/ssh/ssh_host_ed25519_key"

// startSSH makes the host key on the first start with SSH, and starts the server.
// The key is complete before it has its name: a power cut leaves none rather than
// half of one.
func (s *System) startSSH(ctx context.Context, hostname string) error {
	if _, err := os.Stat(s.path(hostKey)); errors.Is(err, fs.ErrNotExist) {
		temp := s.path(hostKey + ".new")
		for _, left := range []string{temp, temp + ".pub"} {
			if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("host key: %w", err)
			}
		}
		s.at("host key")
		err := s.run(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "root@"+hostname, "-f", temp)
		for _, suffix := range []string{".pub", ""} {
			if err == nil {
				err = place(temp+suffix, s.path(hostKey+suffix))
			}
		}
		if err != nil {
			return fmt.Errorf("host key: %w", err)
		}
	}
	return s.run(ctx, "systemctl", "start", "--no-block", "ssh.service")
}

// place syncs a file that another program made and gives it its name.
func place(temp, path string) error {
	f, err := os.Open(temp)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(path))
	}
	return err
}

// wantedBuses are those of farhand.toml, and those of rpi-preseed.toml where
// that says nothing.
func wantedBuses(s preseed.Settings) map[string]bool {
	wanted := make(map[string]bool)
	for name, on := range map[string]*bool{"i2c1": s.Interfaces.I2C, "spi0": s.Interfaces.SPI, "w1": s.Interfaces.OneWire} {
		if on != nil {
			wanted[name] = *on
		}
	}
	maps.Copy(wanted, s.Farhand.Buses)
	return wanted
}

// maxBusTries is how often a file of the boot partition is written and the
// machine restarted for it, in case the power fails before it is written.
const maxBusTries = 3

// buses has the firmware switch the header's buses: it reads a file of the boot
// partition, so what differs takes a restart. A few are tried for each wish and
// slot, and none in a trial boot, which a restart would end.
func (b *boot) buses(ctx context.Context) (restart string) {
	wanted := wantedBuses(b.store.Settings)
	soc := hardware.SoC(b.deviceTree("compatible"))
	if soc == "" || b.Slot == nil {
		if len(wanted) > 0 {
			b.note("farhand.toml buses", preseed.Ignored, "this board has no header that the image knows")
		}
		return ""
	}
	for _, name := range hardware.Missing(wanted, soc) {
		b.note("farhand.toml buses."+name, preseed.Refused, "this board's header has no such bus that the kernel can drive")
	}
	current, err := b.switchable(ctx, wanted, soc)
	if b.failed("look at the running slot's boot partition", err) {
		return ""
	}
	include := hardware.Include(wanted)
	if string(current) == string(include) {
		if b.store.BusTries > 0 {
			b.store.BusTries = 0
			b.save("that the buses are as wanted")
		}
		return ""
	}
	sum := sha256.Sum256(include)
	attempt := b.slot()["slot"] + " " + hex.EncodeToString(sum[:])
	switch {
	case b.store.Buses == attempt && b.store.BusTries >= maxBusTries:
		b.note("farhand.toml buses", preseed.Refused, "the boot partition doesn't keep what was written; the buses are as they were")
		return ""
	case !b.durable:
		b.note("farhand.toml buses", preseed.Refused, "nothing can be kept, so the buses are as they were")
		return ""
	}
	if b.store.Buses != attempt {
		b.store.Buses, b.store.BusTries = attempt, 0
	}
	b.store.BusTries++
	if !b.save("which buses are wanted") {
		return ""
	}
	b.at("buses")
	err = b.Slot.Commit(ctx, func(root *os.Root) error { return fat.Replace(root, hardware.IncludeFile, include) })
	if b.failed("write which buses the firmware switches on", err) {
		return ""
	}
	if tryboot := b.bootloader().Tryboot; tryboot != nil && *tryboot != 0 {
		b.note("farhand.toml buses", preseed.Changed, "they count from the next start on, since this one is a trial")
		return ""
	}
	return "the header's buses are other ones"
}

// switchable takes out of wanted what the boot partition has no overlay for, and
// returns what its include file says now.
func (b *boot) switchable(ctx context.Context, wanted map[string]bool, soc string) (current []byte, err error) {
	err = b.Slot.View(ctx, func(root *os.Root) error {
		for _, bus := range hardware.Buses() {
			on, asked := wanted[bus.Name]
			if !asked {
				on = bus.Default
			}
			if !on || !slices.Contains(bus.SoCs, soc) {
				continue
			}
			name := hardware.Overlay(bus.Name, soc) + ".dtbo"
			if _, err := root.Stat("overlays/" + name); err != nil {
				wanted[bus.Name] = false
				b.note("farhand.toml buses."+bus.Name, preseed.Refused, fmt.Sprintf("this image has no %s", name))
			}
		}
		current, err = fat.Read(root, hardware.IncludeFile, preseed.MaxFile)
		return err
	})
	return current, err
}
