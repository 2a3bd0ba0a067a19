// Package grant says what a session may do: the four ceilings that bound it
// (Policy), and the directory that it is bound to (Store), proven by a grant
// that this machine alone can sign.
//
// A grant names a session, this machine, a directory, the directory's
// fingerprint and a revision. It never expires by itself; it is worthless once
// the directory was replaced, another machine shows it, or the session was
// attached anew, because the highest revision of every session is remembered
// durably.
package grant
