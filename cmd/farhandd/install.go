package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/config"
	"farhand/systemd/install"
)

// installFlags are what both verbs have.
type installFlags struct {
	root, prefix string
	user         bool
}

func (f *installFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.root, "root", "/", "the `directory` that is the machine's root; with another than / nothing is started")
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "`directory` for bin/farhandd (default /usr/local, with --user ~/.local)")
	cmd.Flags().BoolVar(&f.user, "user", false, "a service of this user alone, without root")
}

func (o *options) installCommand() *cobra.Command {
	var f installFlags
	var helper, noStart bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make this machine run the daemon at every start",
		Long: `Put the daemon and its systemd units on this machine (a Debian, a Raspberry Pi OS):
a user farhand in the groups of the devices, the rules that give devices those
groups, the directory /srv/farhand to offer, and /etc/farhand/farhandd.toml with the
keys given here as flags. Doing it again updates the program and the units and
leaves the configuration as it is, and the helper; --helper=false takes that off.

With --helper commands run as a user operator, who is in no device's group and can
read nothing of the daemon's; without it they run as farhand.`,
		Example: `  sudo farhandd install --helper --platform-url https://relay.example.org --tls-pin-sha256 3b1c…
  sudo farhandd install --helper --shell-enabled --roots /srv/farhand,/home/pi/projects
  farhandd install --user --platform-url https://relay.example.org`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := o.installOptions(cmd, f)
			if err != nil {
				return err
			}
			i.Helper, i.NoStart = helper, noStart
			if f.user && helper {
				return usageError{errors.New("--helper needs a user of its own, which only root can make: leave out --user")}
			}
			if i.Binary, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			there, err := install.Look(i)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("helper") {
				// An update that forgets the flag must not give commands the daemon's rights.
				i.Helper = there.Helper
			}
			if i.Config, i.Roots, err = o.firstConfig(cmd, i, there.Config); err != nil {
				return err
			}
			i.Version = systemdVersion(cmd.Context())
			if err := install.Install(cmd.Context(), i); err != nil {
				return err
			}
			return o.afterInstall(i)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&helper, "helper", false, "run commands as a user of their own")
	cmd.Flags().BoolVar(&noStart, "no-start", false, "only enable it")
	return cmd
}

func (o *options) uninstallCommand() *cobra.Command {
	var f installFlags
	var purge bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take off what install put there",
		Long: `Stop the daemon and remove its program, units, and rules. Its configuration, state
and files stay, and its users; --purge removes the first three, what lies in
/srv/farhand included.`,
		Example: "  sudo farhandd uninstall\n  sudo farhandd uninstall --purge",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := o.installOptions(cmd, f)
			if err != nil {
				return err
			}
			i.Purge = purge
			return install.Uninstall(cmd.Context(), i)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove configuration, state and files, too")
	return cmd
}

func (o *options) installOptions(_ *cobra.Command, f installFlags) (install.Options, error) {
	root, err := filepath.Abs(f.root)
	if err != nil {
		return install.Options{}, err
	}
	i := install.Options{Root: root, Prefix: f.prefix, Out: o.stdout, Run: o.runTool}
	if f.prefix != "" && !filepath.IsAbs(f.prefix) {
		return install.Options{}, usageError{errors.New("--prefix must be an absolute path")}
	}
	if f.user {
		if i.User = o.getenv("HOME"); !filepath.IsAbs(i.User) {
			return install.Options{}, usageError{errors.New("--user needs HOME")}
		}
		return i, nil
	}
	if os.Geteuid() != 0 {
		return install.Options{}, install.ErrNotRoot
	}
	return i, nil
}

// runTool runs a program of the system and shows what it says only if it fails.
func (o *options) runTool(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = o.environ
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s isn't there: this needs a system with systemd", name)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// firstConfig is the configuration that a new machine gets: where a service has its
// state and its files, and what flags say. The roots are those of the one that is
// there, if there is one, since that stays and the unit has to let the daemon write
// to what it names.
func (o *options) firstConfig(cmd *cobra.Command, i install.Options, there string) (text string, roots []string, err error) {
	in := o.input(cmd)
	values := map[string]string{}
	if i.User == "" {
		values["state_dir"], values["roots"] = install.StateDir, install.WorkDir
	}
	for name, value := range in.Flags {
		values[name] = value
	}
	if text, err = config.Text(values); err != nil {
		return "", nil, err
	}
	text = "# The daemon's configuration: farhandd run --help lists the keys.\n\n" + text
	c, err := checkText(in, text)
	if err == nil && there != "" {
		if c, err = checkText(in, there); err != nil {
			err = fmt.Errorf("the configuration that is there: %w", err)
		}
	}
	return text, c.Roots, err
}

// checkText reads a configuration as the daemon will.
func checkText(in config.Input, text string) (config.Config, error) {
	f, err := os.CreateTemp("", "farhandd-*.toml")
	if err != nil {
		return config.Config{}, err
	}
	defer os.Remove(f.Name())
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Close()); err != nil {
		return config.Config{}, err
	}
	in.File, in.Environ, in.Flags = f.Name(), nil, nil
	return config.Load(in)
}

// systemdVersion is the service manager's; 0 if it can't be asked.
func systemdVersion(ctx context.Context) int {
	out, err := exec.CommandContext(ctx, "systemctl", "--version").Output()
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(out)) // systemd 257 (257.9-1)
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return n
}

// afterInstall says what comes next.
func (o *options) afterInstall(i install.Options) error {
	if i.Root != "/" || i.NoStart {
		return nil
	}
	journal, as := "journalctl -u farhandd", "sudo "
	if i.User != "" {
		journal, as = "journalctl --user -u farhandd", ""
		if _, err := io.WriteString(o.stdout, "It runs while you are logged in; for longer: loginctl enable-linger\n"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(o.stdout, "How it is: %sfarhandd status. A pairing code stands there and in: %s\n", as, journal)
	return err
}
