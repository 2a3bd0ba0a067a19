// Package gpio is the family of GPIO chips, on the kernel's character device
// of version 2 (Linux 5.10 and later).
//
// A chip is known by its label (pinctrl-bcm2711), never by its number, which
// has moved between kernels. Where the label isn't in sysfs, because the kernel
// was built without the old GPIO class, Probe asks the character device for it;
// that claims no line and changes nothing.
//
// Chip and Request are the kernel's chips and requests, or simulated ones
// (gpiosim); both pass the suite in gpiotest. Service serves the operations. Of
// a line it has one holder at a time, by leases; other programs are never
// robbed of theirs. To claim a line switches its pin to GPIO.
//
// # When a lease ends
//
// Each output has an on_release: it keeps its level (hold, the default), becomes
// an input, or is driven to a level. A PWM and the lines that hardware.actuators
// names default to 0. An output that keeps a level stays requested, since the
// kernel promises nothing about a line that nobody has; the next session takes
// over the request as it is.
//
// This holds across a crash as well: what becomes of an output is on the disk
// (Ledger) before it is driven for the first time, and Recover does what is
// pending before the daemon is ready. Between the crash and that moment, which
// the service manager's watchdog bounds (WatchdogSec, at most 10 s, and the
// start), an output of on_release 0 is as the chip leaves a line that nobody
// has: an input, or at its last level. Only outputs that hold their level are in
// the FDStore, so they don't change at all.
//
// # Concurrency
//
// A Service may be used by any number of sessions. Calls to one chip are made
// one after the other. Edges are read by one goroutine for each request that is
// watched, which never waits for a receiver; a software PWM has a thread.
package gpio
