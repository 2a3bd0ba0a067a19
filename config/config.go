package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/knadh/koanf/v2"

	"farhand/internal/pinned"
)

// Config is a checked configuration.
type Config struct {
	File string // the file that was read; empty if none

	// Platform is the platform's base URL with scheme http or https.
	Platform      *url.URL
	CAFile        string
	PinSHA256     string // lower-case hex, or empty
	StateDir      string
	DisplayName   string
	MachineID     string // empty: derived from the board
	OAuthClientID string
	ClaimKeyFile  string // empty: claim in $RUNTIME_DIRECTORY
	// ProvisionSocket is where an appliance's root helper listens, if there is
	// one.
	ProvisionSocket string
	// Roots are absolute and clean. DefaultRoot says that they were not
	// configured, so that the one default directory may be created.
	Roots       []string
	DefaultRoot bool

	ShellEnabled    bool
	ShellHelper     string // absolute path of a socket; empty: commands run as the daemon's user
	HardwareEnabled bool
	// HardwareAllow is nil if not configured: every device.
	HardwareAllow []string
	HardwareDeny  []string
	LeaseIdle     time.Duration
	Actuators     []string // patterns of DEVICE#LINE that are switched off when nobody holds them
	StreamMemory  int      // bytes of all rings together
	// Printers are the 3D printers' servers.
	Printers         []Printer
	PrinterDiscovery bool
	LLM              LLM
	ObserveEnabled   bool
	ForwardAllow     []string // HOST:PORT; none: nothing
	Privacy          Privacy
	Sim              bool
	Limits           Limits
	LogLevel         slog.Level

	values map[string]any // by key, as merged
}

// Changed are the keys that have another value in other, sorted.
func (c Config) Changed(other Config) []string {
	var names []string
	for _, k := range Keys() {
		if !reflect.DeepEqual(c.values[k.Name], other.values[k.Name]) {
			names = append(names, k.Name)
		}
	}
	return names
}

// Printer is the server of a 3D printer.
type Printer struct {
	Name    string
	URL     *url.URL // http or https, with the path prefix if it has one
	KeyFile string   // has its API key; empty if not configured
}

// Limits are the owner's own; a platform may lower them, never raise them.
type Limits struct {
	MaxConcurrent     int
	MaxFileSize       int64 // bytes
	CommandTimeout    time.Duration
	CommandsPerMinute int
}

// WebSocket is the URL of the control socket; that of a session is one path
// element longer.
func (c Config) WebSocket() string {
	u := *c.Platform
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	u.Path = strings.TrimRight(u.Path, "/") + "/ws/local-executor"
	return u.String()
}

// build turns merged values into a Config, checking each.
func build(k *koanf.Koanf, in Input) (Config, error) {
	c := Config{
		CAFile:          k.String("tls.ca_file"),
		OAuthClientID:   k.String("oauth_client_id"),
		MachineID:       k.String("machine_id"),
		DisplayName:     k.String("display_name"),
		ShellEnabled:    k.Bool("shell.enabled"),
		HardwareEnabled: k.Bool("hardware.enabled"),
		HardwareDeny:    k.Strings("hardware.deny"),
		Actuators:       k.Strings("hardware.actuators"),
		ObserveEnabled:  k.Bool("observe.enabled"),
		ForwardAllow:    k.Strings("forward.allow"),

		PrinterDiscovery: k.Bool("hardware.printer_discovery"),
		Sim:              k.Bool("sim"),

		values: k.All(),
	}
	if k.Exists("hardware.allow") {
		c.HardwareAllow = append([]string{}, k.Strings("hardware.allow")...)
	}
	if c.DisplayName == "" {
		c.DisplayName = in.Hostname
	}
	for _, step := range []func(*koanf.Koanf, Input, *Config) error{
		setPlatform, setTLS, setIDs, setDirs, setLLM, setPrinters, setPrivacy, setLimits, setLog,
	} {
		if err := step(k, in, &c); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

func setPlatform(k *koanf.Koanf, _ Input, c *Config) error {
	u, err := parseURL(k.String("platform_url"))
	if err != nil {
		return &Error{Key: "platform_url", Reason: err.Error()}
	}
	switch u.Scheme {
	case "wss":
		u.Scheme = "https"
	case "ws":
		u.Scheme = "http"
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return &Error{Key: "platform_url", Reason: "http:// and ws:// are refused but to loopback, since the token would cross the network in the clear; use https://"}
	}
	c.Platform = u
	return nil
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("not a URL")
	}
	switch u.Scheme {
	case "http", "https", "ws", "wss":
	default:
		return nil, fmt.Errorf("scheme must be https, wss, http or ws")
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("must be scheme://host[:port][/path] and nothing more")
	}
	return u, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func setTLS(k *koanf.Koanf, _ Input, c *Config) error {
	pin := strings.ToLower(strings.ReplaceAll(k.String("tls.pin_sha256"), ":", ""))
	if pin != "" {
		if _, err := pinned.Parse(pin); err != nil {
			return &Error{Key: "tls.pin_sha256", Reason: err.Error()}
		}
	}
	c.PinSHA256 = pin
	return nil
}

// machineID is what a platform accepts in HELLO.machine_id.
var machineID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

func setIDs(_ *koanf.Koanf, _ Input, c *Config) error {
	if c.MachineID != "" && (len(c.MachineID) > 128 || !machineID.MatchString(c.MachineID)) {
		return &Error{Key: "machine_id", Reason: "must be 1 to 128 letters, digits, '.', '_', ':' or '-', a letter or digit first"}
	}
	if c.OAuthClientID == "" {
		return &Error{Key: "oauth_client_id", Reason: "must not be empty"}
	}
	return nil
}

func setDirs(k *koanf.Koanf, in Input, c *Config) error {
	var err error
	if c.StateDir, err = expand(stateDir(k, in), in.Home); err != nil {
		return &Error{Key: "state_dir", Reason: err.Error()}
	}
	if c.CAFile != "" {
		if c.CAFile, err = expand(c.CAFile, in.Home); err != nil {
			return &Error{Key: "tls.ca_file", Reason: err.Error()}
		}
	}
	if helper := k.String("shell.helper"); helper != "" {
		if c.ShellHelper, err = expand(helper, in.Home); err != nil {
			return &Error{Key: "shell.helper", Reason: err.Error()}
		}
	}
	if file := k.String("claim_key_file"); file != "" {
		if c.ClaimKeyFile, err = expand(file, in.Home); err != nil {
			return &Error{Key: "claim_key_file", Reason: err.Error()}
		}
	}
	if c.ProvisionSocket, err = expand(k.String("provision_socket"), in.Home); err != nil {
		return &Error{Key: "provision_socket", Reason: err.Error()}
	}
	roots := k.Strings("roots")
	if !k.Exists("roots") {
		c.DefaultRoot = true
		roots = []string{"~/farhand"}
	}
	seen := make(map[string]bool)
	for _, root := range roots {
		dir, err := expand(root, in.Home)
		if err != nil {
			return &Error{Key: "roots", Reason: fmt.Sprintf("%q: %v", root, err)}
		}
		if !seen[dir] {
			seen[dir] = true
			c.Roots = append(c.Roots, dir)
		}
	}
	return nil
}

func stateDir(k *koanf.Koanf, in Input) string {
	if dir := k.String("state_dir"); dir != "" {
		return dir
	}
	if dirs := lookup(in.Environ, "STATE_DIRECTORY"); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":") // systemd lists several with colons
		return first
	}
	if dir := lookup(in.Environ, "XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "farhand")
	}
	return "~/.local/state/farhand"
}

// expand makes a path absolute: ~ is the home directory, and a relative path
// would depend on where the daemon was started, so it is refused.
func expand(path, home string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home == "" {
			return "", fmt.Errorf("there is no home directory; give an absolute path")
		}
		path = home + path[1:]
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("must be an absolute path or begin with ~/")
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("must not hold a NUL byte")
	}
	return filepath.Clean(path), nil
}

// LLM is the local model.
type LLM struct {
	Enabled       bool
	Kind          string // ollama, openai
	URL           *url.URL
	LoadTimeout   time.Duration
	TokenTimeout  time.Duration
	ContextTokens int
	KeepAlive     time.Duration
	Queue         int
}

func setLLM(k *koanf.Koanf, _ Input, c *Config) error {
	u, err := parseURL(k.String("llm.url"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return &Error{Key: "llm.url", Reason: "must be http://host:port or https://host:port"}
	}
	kind := k.String("llm.kind")
	if kind != "ollama" && kind != "openai" {
		return &Error{Key: "llm.kind", Reason: "must be ollama or openai"}
	}
	if err := within(k, []bounds{
		{"llm.load_timeout_seconds", 1, 86400},
		{"llm.token_timeout_seconds", 1, 86400},
		{"llm.context_tokens", 256, 1 << 20},
		{"llm.keep_alive_seconds", 1, 365 * 86400},
		{"llm.queue", 0, 1024},
	}); err != nil {
		return err
	}
	c.LLM = LLM{
		Enabled:       k.Bool("llm.enabled"),
		Kind:          kind,
		URL:           u,
		LoadTimeout:   seconds(k.Float64("llm.load_timeout_seconds")),
		TokenTimeout:  seconds(k.Float64("llm.token_timeout_seconds")),
		ContextTokens: k.Int("llm.context_tokens"),
		KeepAlive:     seconds(k.Float64("llm.keep_alive_seconds")),
		Queue:         k.Int("llm.queue"),
	}
	return nil
}

// bounds are what a number of the configuration may be.
type bounds struct {
	key      string
	min, max float64
}

func within(k *koanf.Koanf, all []bounds) error {
	for _, l := range all {
		if v := k.Float64(l.key); !(v >= l.min && v <= l.max) {
			return &Error{Key: l.key, Reason: fmt.Sprintf("must lie between %g and %g", l.min, l.max)}
		}
	}
	return nil
}

func setLimits(k *koanf.Koanf, _ Input, c *Config) error {
	if err := within(k, []bounds{
		{"limits.max_concurrent", 1, 1024},
		{"limits.max_file_size_bytes", 1, 1 << 40},
		{"limits.command_timeout_seconds", 0.001, 86400},
		{"limits.max_commands_per_minute", 1, 100000},
		{"limits.stream_memory_bytes", 1 << 20, 1 << 40},
		{"hardware.lease_idle_seconds", 0.001, 86400},
	}); err != nil {
		return err
	}
	c.Limits = Limits{
		MaxConcurrent:     k.Int("limits.max_concurrent"),
		MaxFileSize:       k.Int64("limits.max_file_size_bytes"),
		CommandTimeout:    seconds(k.Float64("limits.command_timeout_seconds")),
		CommandsPerMinute: k.Int("limits.max_commands_per_minute"),
	}
	c.LeaseIdle = seconds(k.Float64("hardware.lease_idle_seconds"))
	c.StreamMemory = k.Int("limits.stream_memory_bytes")
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func setLog(k *koanf.Koanf, _ Input, c *Config) error {
	if err := c.LogLevel.UnmarshalText([]byte(k.String("log_level"))); err != nil {
		return &Error{Key: "log_level", Reason: "must be debug, info, warn or error"}
	}
	return nil
}
