// Package config reads the daemon's configuration: defaults in code, a TOML
// file over them, FARHAND_ variables over the file, flags over both. A key that
// nobody knows is refused with the nearest one that exists, so that a typing
// error never silently means the default; an absent key differs from an invalid
// one. Every failure is an *Error, which the daemon turns into exit status 78
// (EX_CONFIG of sysexits.h).
package config
