package shell

import (
	"slices"
	"strings"

	"farhand/wire"
)

// baseline says which variables of the daemon a command inherits, nothing else:
// so that neither tokens nor the daemon's own wiring (NOTIFY_SOCKET,
// CREDENTIALS_DIRECTORY, FARHAND_*) reach it. The list is the protocol's.
func baseline(name string) bool {
	switch name {
	case "HOME", "PATH", "LANG", "TZ", "TMPDIR", "USER", "SHELL":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// environment is the baseline of a daemon's environment, as a map.
func environment(environ []string) map[string]string {
	env := make(map[string]string, 8)
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && baseline(name) {
			env[name] = value
		}
	}
	return env
}

// merge puts the request's variables over the baseline. PYTHONIOENCODING comes
// last, whatever the request says, since output is decoded as UTF-8.
func merge(base, request map[string]string) (env, keys []string, path string, err error) {
	merged := make(map[string]string, len(base)+len(request)+1)
	for name, value := range base {
		merged[name] = value
	}
	for name, value := range request {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, nil, "", invalid("invalid_env", "the name of an environment variable is empty or contains '=' or NUL")
		}
		if strings.Contains(value, "\x00") {
			return nil, nil, "", invalid("nul_byte", "environment variable %q contains a NUL byte", name)
		}
		merged[name] = value
	}
	merged["PYTHONIOENCODING"] = "utf-8"

	keys = make([]string, 0, len(merged))
	for name := range merged {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	env = make([]string, len(keys))
	for i, name := range keys {
		env[i] = name + "=" + merged[name]
	}
	return env, keys, merged["PATH"], nil
}

func invalid(reason, format string, args ...any) error {
	return wire.Errorf(wire.InternalError, format, args...).With("reason", reason)
}
