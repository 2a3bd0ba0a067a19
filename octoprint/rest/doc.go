// Package rest speaks with a 3D printer's server: OctoPrint's REST API in its
// shapes before 2.0 and of 2.0, its push socket and its application keys, and
// Moonraker behind its OctoPrint face, with Moonraker's own API where that face
// has nothing. It has no policy: what may be asked for, by whom and what becomes
// of a heater is octoprint's to say.
//
// Sources, quoted in the comments as "docs: NAME": OctoPrint's documentation,
// docs/api/NAME.rst and docs/bundledplugins/appkeys.rst of its repository
// (docs.octoprint.org/en/master/api/NAME.html); "moonraker:" stands for
// moonraker's octoprint_compat component and its published API
// (moonraker.readthedocs.io).
//
// Every request carries the API key in a header and never in a URL; a redirect
// is followed only within the configured origin; nothing that changes the world
// is sent twice. A Client may be used from several goroutines.
package rest
