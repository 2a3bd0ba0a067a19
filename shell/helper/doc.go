// Package helper runs commands in another process and as another user: Client is a
// shell.Runner for the daemon, Server is what `farhandd exec-helper` does.
//
// Each command has a connection of its own over a Unix socket, and that connection
// is the command's life: the request with the descriptors of its directory and its
// input and outputs goes out (SCM_RIGHTS, unix(7)), then small messages in both
// directions. When the daemon closes it or dies, a command that still runs is
// killed with all that it started; when the helper dies, the service manager kills
// what ran in its cgroup, and the daemon learns of it from the connection's end.
//
// The helper does whatever it is asked to, so it asks who is there: only the
// daemon's user is served (SO_PEERCRED).
package helper
