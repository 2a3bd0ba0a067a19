package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"farhand/internal/version"
	"farhand/shell"
	"farhand/shell/helper"
	"farhand/systemd"
)

func (o *options) execHelperCommand() *cobra.Command {
	var forUser, socket string
	cmd := &cobra.Command{
		Use:   "exec-helper",
		Short: "Run the daemon's commands as this user",
		Long: `Run the commands and terminals that the daemon asks for, as the user that this is
started as: one that can read nothing of the daemon's. farhand-exec.service starts
it. It serves --for alone, by the socket's own word.

The socket is the one that the service manager passes under the name "exec", or
--socket, which is made with mode 0660 and must not exist.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(o.stderr, nil))
			uid, err := uidOf(forUser)
			if err != nil {
				return err
			}
			l, err := o.execListener(cmd.Context(), socket)
			if err != nil {
				return err
			}
			defer l.Close()
			return o.serveCommands(cmd.Context(), l, uid, log)
		},
	}
	cmd.Flags().StringVar(&forUser, "for", "farhand", "the daemon's `user`, the only one that is served")
	cmd.Flags().StringVar(&socket, "socket", "", "listen on this `path` instead of the service manager's socket")
	return cmd
}

// uidOf is a user's number.
func uidOf(name string) (int, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("--for: %w; name the user that the daemon runs as", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return 0, fmt.Errorf("--for: user %s has the number %q", name, u.Uid)
	}
	return uid, nil
}

// execListener is the socket to serve at.
func (o *options) execListener(ctx context.Context, path string) (*net.UnixListener, error) {
	if path != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o660); err != nil {
			return nil, errors.Join(fmt.Errorf("set the mode of %s: %w", path, err), l.Close())
		}
		return l.(*net.UnixListener), nil // what this network gives
	}
	files, err := systemd.Restored(o.getenv)
	if err != nil {
		return nil, err
	}
	f := files["exec"]
	if f == nil {
		return nil, usageError{errors.New("no socket: farhand-exec.socket passes one, or give --socket")}
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the service manager's socket: %w", err)
	}
	socket, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("the service manager's socket is no Unix socket"), l.Close())
	}
	socket.SetUnlinkOnClose(false) // it is the service manager's
	return socket, nil
}

// rootGroups are groups whose members read any disk, or become root by a service
// that serves them.
var rootGroups = []string{"root", "disk", "shadow", "docker", "lxd", "incus", "incus-admin", "libvirt", "sudo", "wheel"}

// confined says whether what this process starts has its user's rights at most.
func confined() bool {
	on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || on != 1 || os.Getuid() == 0 {
		return false
	}
	groups, err := os.Getgroups()
	if err != nil {
		return false
	}
	for _, gid := range append(groups, os.Getgid(), os.Getegid()) {
		g, err := user.LookupGroupId(strconv.Itoa(gid))
		if gid == 0 || err == nil && slices.Contains(rootGroups, g.Name) {
			return false
		}
	}
	return true
}

func (o *options) serveCommands(ctx context.Context, l *net.UnixListener, uid int, log *slog.Logger) error {
	manager := systemd.Notifier{Active: o.getenv("NOTIFY_SOCKET") != "", Log: log}
	local := shell.LocalConfig{Log: log}
	if manager.Active { // a cgroup of a unit has nobody else in it
		local.Limits = shell.DefaultLimits()
	}
	runner, err := shell.NewLocal(local)
	if err != nil {
		return err
	}
	defer runner.Close()
	info := helper.Info{Version: version.String(), PID: os.Getpid(), UID: os.Getuid(), User: o.getenv("USER"), Exact: runner.Exact(), Confined: confined()}
	if u, err := user.Current(); err == nil {
		info.User = u.Username
	}
	s := helper.NewServer(helper.Config{UIDs: []int{uid}, Runner: runner, Environ: o.environ, Info: info, Log: log})
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() {
		if err := manager.Watchdog(ctx, systemd.Part{Name: "accept", Alive: s.Alive}); err != nil {
			log.Error("watchdog", "err", err)
		}
	})
	manager.Ready("commands run as " + info.User)
	err = s.Serve(ctx, l)
	manager.Stopping()
	return err
}
