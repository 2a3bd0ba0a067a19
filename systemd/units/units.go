// Package units has the unit files that Farhand runs by, as text: what the image
// holds and what farhandd install writes are the same files.
//
// The daemon, the helper that starts its commands as another user, and on the
// appliance the two services that act as root each have a unit of their own;
// where two machines need something different it stands in a drop-in.
package units

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"farhand/internal/sorted"
)

//go:embed files
var files embed.FS

// File is one file to be installed.
type File struct {
	// Path is where it belongs below the root, without a leading slash.
	Path    string
	Content string
}

// Names of units.
const (
	Daemon          = "farhandd.service"
	Exec            = "farhand-exec.service"
	ExecSocket      = "farhand-exec.socket"
	Provision       = "farhand-provision.service"
	ProvisionSocket = "farhand-provision.socket"
	Provisiond      = "farhand-provisiond.service" // started by the socket
	Ollama          = "ollama.service"
)

// Program is where the units expect the daemon, unless Options say otherwise.
const Program = "/usr/bin/farhandd"

// Options say what a machine needs.
type Options struct {
	// Dir is where units go, below the root; empty: usr/lib/systemd/system.
	Dir string
	// Program is the absolute path of the daemon; empty: Program.
	Program string
	// Version is the service manager's, such as 257; 0: the newest. Before 253
	// there is no Type=notify-reload, and the units reload by a signal.
	Version int
	// Appliance adds what provisions the appliance and puts its state on the data
	// partition, and the unit of a local model, which runs where /data/ollama has
	// Ollama. It includes Helper.
	Appliance bool
	// Helper has commands run as operator.
	Helper bool
	// User is for a service of one user, which has neither of the above.
	User bool
}

// Files are the units for a machine, sorted by path.
func Files(o Options) ([]File, error) {
	if o.Dir == "" {
		o.Dir = "usr/lib/systemd/system"
	}
	if o.Program == "" {
		o.Program = Program
	}
	if !path.IsAbs(o.Program) || strings.ContainsAny(o.Program, " \t\n\"'%$\\") {
		return nil, fmt.Errorf("the program must have an absolute path that needs no quoting in a unit, not %q", o.Program)
	}
	names := map[string]string{
		Daemon:          Daemon,
		"farhand.slice": "farhand.slice",
	}
	if o.User {
		names = map[string]string{Daemon: "farhandd-user.service"}
		o.Helper, o.Appliance = false, false
	}
	if o.Helper || o.Appliance {
		for _, name := range []string{Exec, ExecSocket, "operator.slice"} {
			names[name] = name
		}
		names[Daemon+".d/helper.conf"] = "farhandd-helper.conf"
	}
	if o.Appliance {
		for _, name := range []string{Provision, ProvisionSocket, Provisiond, Ollama} {
			names[name] = name
		}
		names[Daemon+".d/appliance.conf"] = "farhandd-appliance.conf"
	}
	var all []File
	for target, name := range names {
		content, err := text(name)
		if err != nil {
			return nil, err
		}
		all = append(all, File{Path: path.Join(o.Dir, target), Content: o.adapt(content)})
	}
	sorted.By(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// Enabled are the units of Files that are to be enabled, in the order in which
// they are to be started.
func (o Options) Enabled() []string {
	if o.User {
		return []string{Daemon}
	}
	var all []string
	if o.Appliance {
		all = append(all, Provision, ProvisionSocket)
	}
	if o.Helper || o.Appliance {
		all = append(all, ExecSocket, Exec)
	}
	all = append(all, Daemon)
	if o.Appliance {
		all = append(all, Ollama)
	}
	return all
}

// firstNotifyReload is the first systemd with Type=notify-reload (its NEWS).
const firstNotifyReload = 253

func (o Options) adapt(content string) string {
	content = strings.ReplaceAll(content, Program, o.Program)
	if o.Version > 0 && o.Version < firstNotifyReload {
		content = strings.ReplaceAll(content, "Type=notify-reload\n", "Type=notify\nExecReload=/bin/kill -HUP $MAINPID\n")
	}
	return content
}

// SudoDropIn is where and what makes sudo possible for commands, relative to a
// directory of units such as /run/systemd/system.
func SudoDropIn() (File, error) {
	content, err := text("farhand-exec-sudo.conf")
	return File{Path: Exec + ".d/sudo.conf", Content: content}, err
}

// RootsDropIn lets the daemon write to directories beside its own, as a drop-in of
// its unit below Dir. The paths must be absolute.
func RootsDropIn(o Options, roots []string) (File, error) {
	if o.Dir == "" {
		o.Dir = "usr/lib/systemd/system"
	}
	var b strings.Builder
	b.WriteString("# The roots of farhandd.toml.\n\n[Service]\n")
	for _, root := range roots {
		if !path.IsAbs(root) || strings.ContainsAny(root, "\n\x00") {
			return File{}, fmt.Errorf("root %q is no absolute path", root)
		}
		// systemd.syntax(7): quotes for spaces, %% for a per cent sign.
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace("-" + root)
		fmt.Fprintf(&b, "ReadWritePaths=\"%s\"\n", quoted)
	}
	return File{Path: path.Join(o.Dir, Daemon+".d", "roots.conf"), Content: b.String()}, nil
}

// UdevRules say which group may use which kind of device.
func UdevRules() (string, error) { return text("udev.rules") }

// Sysusers is what systemd-sysusers(8) makes on an ordinary machine; the
// appliance has fixed users.
func Sysusers(helper bool) (string, error) { return both("sysusers", helper) }

// Tmpfiles is what systemd-tmpfiles(8) makes on an ordinary machine.
func Tmpfiles(helper bool) (string, error) { return both("tmpfiles", helper) }

func both(name string, helper bool) (string, error) {
	content, err := text(name + ".conf")
	if err != nil || !helper {
		return content, err
	}
	more, err := text(name + "-helper.conf")
	return content + more, err
}

func text(name string) (string, error) {
	b, err := files.ReadFile("files/" + name)
	if err != nil {
		return "", fmt.Errorf("unit %s: %w", name, err)
	}
	return string(b), nil
}
