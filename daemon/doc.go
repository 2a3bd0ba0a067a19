// Package daemon puts everything together: from a configuration to a machine
// that is connected, serves what its owner allows, and records it.
//
// services.go makes the parts, methods.go is the table of what a session may
// ask for, drivers.go the list of drivers, daemon.go the states that a daemon
// goes through. Other processes on the machine talk to it over the socket of
// local.go.
package daemon
