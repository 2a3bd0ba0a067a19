// Package observe looks at the machine that the daemon runs on: how it is doing
// (System) and what its journal says (Journal). It changes nothing. Everything is
// read below an injected root, and what a machine doesn't tell is absent, never
// an error.
//
// The journal is read by journalctl(1), a child process that has no more rights
// than the daemon, since its files have no other stable reader without cgo.
package observe
