package config

import (
	"fmt"
	"sort"
	"strings"
)

// kind is what a key holds.
type kind uint8

const (
	text kind = iota
	boolean
	integer
	number
	list
)

// Key is one configuration key.
type Key struct {
	Name    string // as in the file, dots between tables
	kind    kind
	Default any    // nil: computed at start, see Doc
	Doc     string // one line for --help and the documentation
}

// Env is the variable that sets the key.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag is the command-line flag that sets the key.
func (k Key) Flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
}

// IsBool says whether the key's flag may stand without a value.
func (k Key) IsBool() bool { return k.kind == boolean }

const envPrefix = "FARHAND_"

// Keys lists every key, sorted by name.
func Keys() []Key {
	keys := []Key{
		{"platform_url", text, "wss://platform.autogpt.net", "the platform or relay, https:// or wss:// (http:// and ws:// only to loopback)"},
		{"tls.ca_file", text, "", "PEM file of the certificate authorities to trust instead of the system's"},
		{"tls.pin_sha256", text, "", "trust exactly the certificate with this SHA-256 (hex, of its DER) as root"},
		{"state_dir", text, nil, "keys, tokens, grants and the audit log (default $STATE_DIRECTORY, else $XDG_STATE_HOME/farhand)"},
		{"display_name", text, nil, "the name shown to people (default: the host name)"},
		{"machine_id", text, nil, "overrides the id derived from the board"},
		{"oauth_client_id", text, "autogpt-local-executor", "OAuth client id"},
		{"claim_key_file", text, "", "holds a claim key, redeemed once instead of showing a code (default claim in $RUNTIME_DIRECTORY)"},
		{"provision_socket", text, "/run/farhand/provision.sock", "where an appliance's root helper listens, which owns the screen; without one nothing is missed"},
		{"roots", list, nil, "directories offered for browsing, and no others (default ~/farhand)"},
		{"shell.enabled", boolean, false, "allow commands; without shell.helper they run as the daemon's user and may do all it may"},
		{"shell.helper", text, "", "socket of the helper that runs commands as a user of its own (default: none, they run as the daemon's)"},
		{"hardware.enabled", boolean, true, "list and drive what is wired to this machine"},
		{"hardware.allow", list, nil, "glob patterns of device ids that may be used, PATTERN[;lines=A,B][;ops=A,B] (default: all)"},
		{"hardware.deny", list, nil, "glob patterns of device ids that are hidden, over allow"},
		{"hardware.actuators", list, nil, "glob patterns DEVICE#LINE (gpio:*#GPIO17) of outputs that go off when nobody holds them"},
		{"hardware.lease_idle_seconds", number, 300.0, "a held device is given back after this long without an operation"},
		{"hardware.printers", list, nil, "3D printers as name=url of their OctoPrint or Moonraker, path prefix and all"},
		{"hardware.printer_keys", list, nil, "files with their API keys as name=path; without one PRINTER_JOIN asks the owner"},
		{"hardware.printer_discovery", boolean, false, "look for OctoPrint in the network by mDNS; what is found is listed, never used by itself"},
		{"llm.enabled", boolean, false, "offer the local model"},
		{"llm.kind", text, "ollama", "what serves it: ollama, or openai for llama.cpp's server, LM Studio and others with that API"},
		{"llm.url", text, "http://127.0.0.1:11434", "where that listens"},
		{"llm.load_timeout_seconds", number, 600.0, "a completion fails if its first token takes longer"},
		{"llm.token_timeout_seconds", number, 120.0, "a completion fails if any later token takes longer"},
		{"llm.context_tokens", integer, 4096, "most tokens of prompt and answer together; more takes memory (ollama only)"},
		{"llm.keep_alive_seconds", number, 1800.0, "a model stays in memory for so long after its last use (ollama only)"},
		{"llm.queue", integer, 4, "completions that may wait their turn, where the platform grants that; 0: none"},
		{"forward.allow", list, nil, "targets HOST:PORT of TCP connections that may be forwarded: names, addresses, networks (10.0.0.0/8:80), ports 80, 8000-8010 or * (default: none)"},
		{"observe.enabled", boolean, true, "let whom the owner allows it read the journal and see how the machine is doing"},
		{"privacy.private", list, nil, "files and directories whose content never leaves the machine, PATTERN[;schema=named][;names=shown] with * ? [seq] and ** (default: none)"},
		{"privacy.answer_chars", integer, 2000, "most characters of an answer that the local model gives about private files, 1 to 65536"},
		{"privacy.release", boolean, false, "hold each such answer until farhandd release lets it go"},
		{"privacy.release_timeout_seconds", number, 600.0, "for so long; then it is refused"},
		{"sim", boolean, false, "add a bench of simulated devices"},
		{"limits.max_concurrent", integer, 4, "requests in work at once on one socket, 1 to 1024"},
		{"limits.max_file_size_bytes", integer, 10485760, "most that one message carries of a file or an answer, bytes"},
		{"limits.command_timeout_seconds", number, 30.0, "longest command, seconds"},
		{"limits.max_commands_per_minute", integer, 60, "commands started in any 60 seconds"},
		{"limits.stream_memory_bytes", integer, 33554432, "what all open streams may keep for a receiver that is away, bytes"},
		{"log_level", text, "info", "debug, info, warn or error"},
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].Name < keys[j].Name })
	return keys
}

func findKey(name string) (Key, bool) {
	for _, k := range Keys() {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// nearest is the candidate with the fewest changed letters from name.
func nearest(name string, candidates []string) string {
	best, distance := "", len(name)+1
	for _, c := range candidates {
		if d := edits(name, c); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// edits is the Levenshtein distance between a and b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// Error is a configuration that can't be used: which key, where it came from
// and what is wrong with it.
type Error struct {
	Key    string
	Source string // a file, a variable, a flag, or empty
	Reason string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("configuration")
	if e.Source != "" {
		fmt.Fprintf(&b, " (%s)", e.Source)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, ": %s", e.Key)
	}
	return b.String() + ": " + e.Reason
}
