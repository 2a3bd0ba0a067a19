// Package identity says which machine this is: a machine id that stays the same
// over restarts, updates and reflashing and differs from that of every other
// board, cloned cards included; and what HELLO tells about the platform. It also
// keeps two daemons from sharing one state directory.
//
// The id is made, in this order, from the board's serial number (Raspberry Pi
// and other device tree boards), from /etc/machine-id, or from random bytes, and
// is then remembered in <state_dir>/machine.json. Only a hash of serial number
// or machine-id leaves the machine.
package identity
