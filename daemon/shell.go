package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"farhand/config"
	"farhand/shell"
	"farhand/shell/helper"
)

func (d *services) openShell(_ context.Context, o Options) error {
	if !o.Config.ShellEnabled {
		return nil
	}
	c := shell.Config{
		Timeout: o.Config.Limits.CommandTimeout, PerMinute: o.Config.Limits.CommandsPerMinute,
		Environ: o.Environ, Log: o.Log,
	}
	if o.Config.ShellHelper != "" {
		d.helper = helper.NewClient(o.Config.ShellHelper)
		c.Runner, c.Environ = d.helper, neutral(o.Environ)
	} else {
		local := shell.LocalConfig{Log: o.Log}
		if getenv(o.Environ, "NOTIFY_SOCKET") != "" { // a cgroup of a unit has nobody else in it
			local.Limits = shell.DefaultLimits()
		}
		runner, err := shell.NewLocal(local)
		if err != nil {
			return fmt.Errorf("shell: %w", err)
		}
		d.closers = append(d.closers, runner)
		c.Runner = runner
	}
	d.shell = shell.New(c)
	return nil
}

// neutral is an environment without what tells whose it is: the helper knows for
// which user it runs commands.
func neutral(environ []string) []string {
	var out []string
	for _, pair := range environ {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR":
		default:
			out = append(out, pair)
		}
	}
	return out
}

// shellWarning says what shell means where no helper of another user runs the
// commands.
func shellWarning() string {
	return fmt.Sprintf("on: commands run as the daemon's own user (uid %d) and may do all it may, reading its keys included; roots do not confine them", os.Getuid())
}

// helperPatience bounds the question who the helper is.
const helperPatience = 3 * time.Second

// shellStatus says as whom commands run.
func (d *services) shellStatus() ShellStatus {
	switch {
	case d.shell == nil:
		return ShellStatus{Words: "off"}
	case d.helper == nil:
		return ShellStatus{On: true, Words: shellWarning()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperPatience)
	defer cancel()
	i, err := d.helper.Info(ctx)
	if err != nil {
		return ShellStatus{On: true, Apart: true, Fault: err.Error(), Words: "on, but no command runs: " + err.Error()}
	}
	return helperRuns(i)
}

// helperRuns says as whom a helper runs commands, and what that is worth.
func helperRuns(i helper.Info) ShellStatus {
	if i.UID == os.Getuid() {
		return ShellStatus{On: true, Words: "through a helper of the same user: " + shellWarning()}
	}
	words := fmt.Sprintf("on: commands run as %s (uid %d), not as the daemon", i.User, i.UID)
	if !i.Exact {
		words += "; without a delegated cgroup one that daemonises itself may outlive its end"
	}
	return ShellStatus{On: true, Apart: true, Words: words}
}

// checkShell asks the running daemon, if there is one: what it was started with may
// say more than the configuration does.
func checkShell(c config.Config, running *Status) Finding {
	s := ShellStatus{On: c.ShellEnabled, Apart: c.ShellHelper != "", Words: "off"}
	switch {
	case running != nil:
		s = running.Shell
	case s.Apart:
		s.Words = "on: commands run through the helper at " + c.ShellHelper
	case s.On:
		s.Words = shellWarning()
	}
	switch {
	case s.Fault == "" && (s.Apart || !s.On):
		return Finding{Level: OK, About: "shell", Found: s.Words}
	case s.Fault != "":
		return Finding{Level: Fail, About: "shell", Found: s.Words, Do: "look at: systemctl status farhand-exec.service"}
	}
	return Finding{Level: Warn, About: "shell", Found: s.Words, Do: "have commands run as another user (farhandd install --helper), or turn shell.enabled off"}
}
