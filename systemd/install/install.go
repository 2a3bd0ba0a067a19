// Package install puts the daemon on an ordinary machine and takes it off again: the
// program, its units, its users, the rules for devices, a first configuration.
//
// Installing twice changes nothing the second time, and what the owner has changed
// in the configuration stays. Uninstalling leaves configuration, state and files
// unless it is told to purge.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"farhand/internal/atomicfile"
	"farhand/systemd/units"
)

// Options say what to install and where. The zero value but for Binary, Run and Out
// is the daemon alone, for the machine.
type Options struct {
	// Root is where the machine's file system lies; empty: /. With another root
	// nothing is started.
	Root string
	// Prefix is what bin/farhandd goes below; empty: /usr/local.
	Prefix string
	// Binary is the program to copy.
	Binary string
	// Helper has commands run as another user.
	Helper bool
	// User is the home directory of the one user whose service it is to be;
	// empty: the machine's.
	User string
	// Config is the first configuration; Roots are those of the one that counts,
	// which is there already or this one, beside the default.
	Config string
	Roots  []string
	// Version is the service manager's, such as 257.
	Version int
	// NoStart leaves it to somebody else to start what was installed.
	NoStart bool
	// Purge has Uninstall remove configuration, state and files, too.
	Purge bool

	// Run runs a program of the system. It is exec.CommandContext but in tests.
	Run func(ctx context.Context, name string, args ...string) error
	Out io.Writer // what was done, a line each
}

// Present is what an earlier installation has left for the next one to go by.
type Present struct {
	Config string // its configuration; empty if there is none
	Helper bool   // commands run as another user
}

// Look says what is installed already.
func Look(o Options) (Present, error) {
	o.complete()
	b, err := os.ReadFile(o.at(o.config()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Present{}, fmt.Errorf("look at the configuration: %w", err)
	}
	p := Present{Config: string(b)}
	if o.User == "" {
		_, err = os.Lstat(o.at(helperPath))
		p.Helper = err == nil
	}
	return p, nil
}

// Paths on an ordinary machine, below the root.
const (
	configPath   = "etc/farhand/farhandd.toml"
	sysusersPath = "etc/sysusers.d/farhand.conf"
	tmpfilesPath = "etc/tmpfiles.d/farhand.conf"
	rulesPath    = "etc/udev/rules.d/60-farhand.rules"
	unitDir      = "etc/systemd/system"
	helperPath   = unitDir + "/farhandd.service.d/helper.conf"
	// StateDir, WorkDir and CommandsHome are the places of a service of the machine.
	StateDir     = "/var/lib/farhand"
	WorkDir      = "/srv/farhand"
	CommandsHome = "/var/lib/farhand-operator"
)

// ErrNotRoot says that only root can do it.
var ErrNotRoot = errors.New("a service of the machine is installed by root: use sudo, or --user for a service of your own")

func (o *Options) complete() {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Prefix == "" {
		o.Prefix = "/usr/local"
		if o.User != "" {
			o.Prefix = filepath.Join(o.User, ".local")
		}
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
}

func (o Options) live() bool { return o.Root == "/" }

// program is where the installed program is, as the machine sees it.
func (o Options) program() string { return filepath.Join(o.Prefix, "bin", "farhandd") }

// base is what units.Options go by.
func (o Options) base() units.Options {
	u := units.Options{Dir: unitDir, Program: o.program(), Version: o.Version, Helper: o.Helper}
	if o.User != "" {
		u.Dir, u.User, u.Helper = strings.TrimPrefix(filepath.Join(o.User, ".config/systemd/user"), "/"), true, false
	}
	return u
}

func (o Options) config() string {
	if o.User != "" {
		return strings.TrimPrefix(filepath.Join(o.User, ".config/farhand/farhandd.toml"), "/")
	}
	return configPath
}

// file is one file to be written.
type file struct {
	path    string // below the root
	content string
	mode    fs.FileMode
}

// files are all but the program and the configuration.
func (o Options) files() ([]file, error) {
	list, err := units.Files(o.base())
	if err != nil {
		return nil, err
	}
	if o.User == "" {
		roots := o.Roots
		if !slices.Contains(roots, WorkDir) {
			roots = append([]string{WorkDir}, roots...)
		}
		dropIn, err := units.RootsDropIn(o.base(), roots)
		if err != nil {
			return nil, err
		}
		list = append(list, dropIn)
		for _, more := range []struct {
			path string
			text func() (string, error)
		}{
			{sysusersPath, func() (string, error) { return units.Sysusers(o.Helper) }},
			{tmpfilesPath, func() (string, error) { return units.Tmpfiles(o.Helper) }},
			{rulesPath, units.UdevRules},
		} {
			content, err := more.text()
			if err != nil {
				return nil, err
			}
			list = append(list, units.File{Path: more.path, Content: content})
		}
	}
	var all []file
	for _, f := range list {
		all = append(all, file{f.Path, f.Content, 0o644})
	}
	return all, nil
}

func (o Options) at(path string) string { return filepath.Join(o.Root, path) }

func (o Options) say(format string, args ...any) error {
	_, err := fmt.Fprintf(o.Out, format+"\n", args...)
	return err
}

// Install installs. What it did before it failed stays, and a second try goes on.
func Install(ctx context.Context, o Options) error {
	o.complete()
	changed, err := o.copyProgram()
	if err != nil {
		return err
	}
	list, err := o.files()
	if err != nil {
		return err
	}
	for _, f := range list {
		wrote, err := o.write(f)
		if err != nil {
			return err
		}
		changed = changed || wrote
	}
	stale, err := o.removeStale(list)
	if err != nil {
		return err
	}
	changed = changed || stale
	if o.User == "" {
		// Both look for a name without a slash in the directories of their kind.
		for _, tool := range [][]string{{"systemd-sysusers", filepath.Base(sysusersPath)}, {"systemd-tmpfiles", "--create", filepath.Base(tmpfilesPath)}} {
			args := slices.Clone(tool[1:])
			if !o.live() {
				args = append([]string{"--root=" + o.Root}, args...)
			}
			if err := o.Run(ctx, tool[0], args...); err != nil {
				return fmt.Errorf("make users and directories: %w", err)
			}
		}
	}
	if err := o.writeConfig(ctx); err != nil {
		return err
	}
	return o.start(ctx, changed)
}

// copyProgram puts the program in its place; a running one is replaced by name.
func (o Options) copyProgram() (changed bool, err error) {
	b, err := os.ReadFile(o.Binary)
	if err != nil {
		return false, fmt.Errorf("read the program: %w", err)
	}
	return o.write(file{o.program(), string(b), 0o755})
}

// write writes a file unless it is there already.
func (o Options) write(f file) (changed bool, err error) {
	path := o.at(f.path)
	old, err := os.ReadFile(path)
	if err == nil && string(old) == f.content {
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm() == f.mode {
			return false, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look at what is there: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	if err := atomicfile.Write(path, []byte(f.content), f.mode); err != nil {
		return false, err
	}
	return true, o.say("wrote   %s", path)
}

// removeStale removes what an earlier installation had and this one hasn't.
func (o Options) removeStale(list []file) (removed bool, err error) {
	all, err := o.everything()
	if err != nil {
		return false, err
	}
	for _, path := range all {
		if slices.ContainsFunc(list, func(f file) bool { return f.path == path }) {
			continue
		}
		gone, err := o.remove(path)
		if err != nil {
			return removed, err
		}
		removed = removed || gone
	}
	return removed, nil
}

// everything is each path that any installation of this scope writes, but for the
// program and the configuration.
func (o Options) everything() ([]string, error) {
	o.Helper, o.Roots = true, nil
	list, err := o.files()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range list {
		all = append(all, f.path)
	}
	return all, nil
}

func (o Options) remove(path string) (removed bool, err error) {
	name := o.at(path)
	err = os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if filepath.Ext(filepath.Dir(name)) == ".d" && strings.HasSuffix(filepath.Dir(name), ".service.d") {
		_ = os.Remove(filepath.Dir(name)) // stays if the owner has drop-ins, too
	}
	return true, o.say("removed %s", name)
}

// writeConfig writes a first configuration, for its owner to change.
func (o Options) writeConfig(ctx context.Context) error {
	path := o.at(o.config())
	if old, err := os.ReadFile(path); err == nil {
		if bytes.Equal(old, []byte(o.Config)) {
			return nil
		}
		return o.say("kept    %s", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Create(path, []byte(o.Config), 0o640); err != nil {
		return err
	}
	if o.User == "" {
		if err := o.giveToDaemon(ctx, path); err != nil {
			return err
		}
	}
	return o.say("wrote   %s", path)
}

// giveToDaemon lets the daemon read its configuration, and nobody else. The group
// is one of the root that it is installed below.
func (o Options) giveToDaemon(ctx context.Context, path string) error {
	if o.live() {
		return o.Run(ctx, "chgrp", "farhand", path)
	}
	gid, err := groupID(o.at("etc/group"), "farhand")
	if err != nil {
		return err
	}
	return o.Run(ctx, "chgrp", gid, path)
}

// groupID looks up a group in a file (group(5)).
func groupID(path, name string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) >= 3 && fields[0] == name {
			return fields[2], nil
		}
	}
	return "", fmt.Errorf("no group %s in %s", name, path)
}

// systemctl runs the service manager's command in the right scope.
func (o Options) systemctl(ctx context.Context, args ...string) error {
	switch {
	case !o.live():
		args = append([]string{"--root=" + o.Root}, args...)
	case o.User != "":
		args = append([]string{"--user"}, args...)
	}
	return o.Run(ctx, "systemctl", args...)
}

// start enables the units, and starts them anew if anything changed: a watchdog that
// is added to a service that runs bites at once (systemd issue 9467), so what runs
// is restarted rather than reloaded.
func (o Options) start(ctx context.Context, changed bool) error {
	enabled := o.base().Enabled()
	if !o.live() {
		if o.User != "" {
			return o.say("enable it with: systemctl --user enable --now %s", units.Daemon)
		}
		return o.systemctl(ctx, append([]string{"enable"}, enabled...)...)
	}
	if err := o.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := o.systemctl(ctx, append([]string{"enable"}, enabled...)...); err != nil {
		return err
	}
	if o.NoStart {
		return nil
	}
	if o.User == "" && changed {
		// A rule changes what the nodes that are there look like only when asked to.
		if err := errors.Join(o.Run(ctx, "udevadm", "control", "--reload"), o.Run(ctx, "udevadm", "trigger", "--action=change",
			"--subsystem-match=gpio", "--subsystem-match=i2c-dev", "--subsystem-match=spidev", "--subsystem-match=usb", "--subsystem-match=usbmisc", "--subsystem-match=hidraw")); err != nil {
			if err := o.say("devices keep their groups until they are plugged in anew: %v", err); err != nil {
				return err
			}
		}
	}
	verb := "start"
	if changed {
		verb = "restart"
	}
	if err := o.systemctl(ctx, append([]string{verb}, enabled...)...); err != nil {
		return fmt.Errorf("%w; look at: systemctl status %s", err, units.Daemon)
	}
	return o.say("%sed: %s", verb, strings.Join(enabled, " "))
}

// Uninstall takes off what Install put there.
func Uninstall(ctx context.Context, o Options) error {
	o.complete()
	o.Helper = true // whatever was installed
	if err := o.stop(ctx); err != nil {
		return err
	}
	all, err := o.everything()
	if err != nil {
		return err
	}
	for _, path := range append(all, o.program()) {
		if _, err := o.remove(path); err != nil {
			return err
		}
	}
	if o.live() {
		if err := o.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	return o.purge()
}

// stop stops and disables the units that are there.
func (o Options) stop(ctx context.Context) error {
	var there []string
	for _, unit := range o.base().Enabled() {
		if _, err := os.Stat(o.at(filepath.Join(o.base().Dir, unit))); err == nil {
			there = append(there, unit)
		}
	}
	if len(there) == 0 {
		return nil
	}
	args := []string{"disable"}
	if o.live() {
		args = append(args, "--now")
	}
	if err := o.systemctl(ctx, append(args, there...)...); err != nil {
		return fmt.Errorf("stop the services: %w", err)
	}
	return nil
}

// purge removes what an owner may want to keep, or says that it is kept.
func (o Options) purge() error {
	kept := []string{"/" + o.config(), StateDir, WorkDir, CommandsHome}
	if o.User != "" {
		kept = []string{"/" + o.config(), filepath.Join(o.User, ".local/state/farhand")}
	}
	for _, path := range kept {
		name := o.at(path)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !o.Purge {
			if err := o.say("kept    %s", name); err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return err
		}
		if err := o.say("removed %s", name); err != nil {
			return err
		}
	}
	if o.Purge {
		_ = os.Remove(filepath.Dir(o.at(o.config()))) // stays if there is more in it
	}
	return nil
}
