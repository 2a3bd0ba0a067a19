// Package version says which version of Farhand a program is.
package version

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// version is stamped by the build:
//
//	go build -ldflags "-X farhand/internal/version.version=v1.2.3"
var version string

// unknown is what a program built without any stamp calls itself.
const unknown = "0.0.0-dev"

// valid is what the AutoGPT platform accepts as shim_version.
var valid = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

// String is the version stamped by the build, else what the Go tool recorded
// about module and commit. It always fits HELLO's shim_version: a letter or
// digit, then up to 63 of letters, digits and "._+-".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return choose(version, info)
}

func choose(stamp string, info *debug.BuildInfo) string {
	candidates := []string{stamp}
	if info != nil {
		if v := info.Main.Version; v != "(devel)" {
			candidates = append(candidates, v)
		}
		candidates = append(candidates, fromCommit(info))
	}
	for _, c := range candidates {
		if c = strings.TrimPrefix(c, "v"); valid.MatchString(c) {
			return c
		}
	}
	return unknown
}

// fromCommit is 0.0.0-dev+<commit>[.dirty], or empty.
func fromCommit(info *debug.BuildInfo) string {
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return unknown + "+" + commit + dirty
}
