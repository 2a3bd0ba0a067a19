// Package octoprint is the family of printers: instances of OctoPrint (or of
// Moonraker, behind its OctoPrint face) that the configuration names, and the
// USB printer-class ports that the kernel's usblp drives.
//
// Servers is driver and service of the instances; Driver and PortService are
// those of the ports. A printer has one holder at a time, as every device: a
// session's lease covers what it started. What belongs to the server and not to
// the session, above all a job that runs, goes on when the lease ends; heaters
// that the session switched on are switched off then, unless a job runs or it
// asked otherwise. Nothing here ever switches a heater on by itself.
//
// Everything may be used from several goroutines at once.
package octoprint
