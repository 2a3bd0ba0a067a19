// Package octotest is a printer and its server in one process, for tests and
// for the simulated bench: OctoPrint's REST API before 2.0 and of 2.0, its push
// socket and its application keys, or Moonraker behind its OctoPrint face. It
// follows what those are documented to do, and can be told to do what they are
// known to do wrong (Faults).
//
// Sources, quoted in the comments as "docs: NAME": docs/api/NAME.rst and
// docs/bundledplugins/appkeys.rst of OctoPrint's repository; "moonraker:" stands
// for its octoprint_compat and file_manager components and its published API.
package octotest
