package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Input is where a configuration comes from. Nothing else is looked at.
type Input struct {
	File    string            // from --config; empty: the default file, if there is one
	Environ []string          // as os.Environ
	Flags   map[string]string // key name → value
	Home    string            // the user's home directory
	UID     int
	// Hostname is the default of display_name.
	Hostname string
}

// maxFile bounds the configuration file; a real one has a few hundred bytes.
const maxFile = 1 << 20

// Load reads, merges and checks the configuration.
func Load(in Input) (Config, error) {
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(defaults(), "."), nil); err != nil {
		return Config{}, fmt.Errorf("load defaults: %w", err)
	}
	file, err := loadFile(k, in)
	if err != nil {
		return Config{}, err
	}
	if err := loadEnv(k, in.Environ); err != nil {
		return Config{}, err
	}
	if err := loadFlags(k, in.Flags); err != nil {
		return Config{}, err
	}
	c, err := build(k, in)
	c.File = file
	return c, err
}

func defaults() map[string]any {
	m := make(map[string]any)
	for _, key := range Keys() {
		if key.Default != nil {
			m[key.Name] = key.Default
		}
	}
	return m
}

// DefaultFile is where the file is looked for without --config.
func DefaultFile(in Input) string {
	if in.UID == 0 || lookup(in.Environ, "INVOCATION_ID") != "" { // set by systemd for its services
		return "/etc/farhand/farhandd.toml"
	}
	dir := lookup(in.Environ, "XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(in.Home, ".config")
	}
	return filepath.Join(dir, "farhand", "farhandd.toml")
}

func loadFile(k *koanf.Koanf, in Input) (string, error) {
	path, required := in.File, true
	if path == "" {
		path, required = DefaultFile(in), false
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return "", nil
	}
	if err != nil {
		return "", &Error{Source: path, Reason: err.Error()}
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", &Error{Source: path, Reason: fmt.Sprintf("not a regular file of at most %d bytes", maxFile)}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &Error{Source: path, Reason: err.Error()}
	}
	read := koanf.New(".")
	if err := read.Load(rawbytes.Provider(b), toml.Parser()); err != nil {
		return "", &Error{Source: path, Reason: err.Error()}
	}
	merged := make(map[string]any)
	for name, value := range read.All() {
		if table, ok := value.(map[string]any); ok && len(table) == 0 && isTable(name) {
			continue
		}
		key, ok := findKey(name)
		if !ok {
			return "", unknown(path, name, keyNames())
		}
		v, err := convert(key, value)
		if err != nil {
			return "", &Error{Key: name, Source: path, Reason: err.Error()}
		}
		merged[name] = v
	}
	return path, k.Load(confmap.Provider(merged, "."), nil)
}

// isTable says whether keys lie below name.
func isTable(name string) bool {
	return slices.ContainsFunc(Keys(), func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// foreign are variables of the sister programs, which may stand in the same
// environment.
func foreign(name string) bool {
	switch name {
	case "FARHAND_URL", "FARHAND_TOKEN", "FARHAND_TOKEN_FILE", "FARHAND_CA_SHA256", "FARHAND_CONFIG_DIR":
		return true
	}
	return strings.HasPrefix(name, "FARHAND_RELAY_") || strings.HasPrefix(name, "FARHAND_TEST_")
}

func loadEnv(k *koanf.Koanf, environ []string) error {
	byEnv := make(map[string]Key)
	var names []string
	for _, key := range Keys() {
		byEnv[key.Env()] = key
		names = append(names, key.Env())
	}
	merged := make(map[string]any)
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || foreign(name) {
			continue
		}
		key, ok := byEnv[name]
		if !ok {
			return unknown("environment", name, names)
		}
		v, err := parse(key, value)
		if err != nil {
			return &Error{Key: key.Name, Source: name, Reason: err.Error()}
		}
		merged[key.Name] = v
	}
	return k.Load(confmap.Provider(merged, "."), nil)
}

func loadFlags(k *koanf.Koanf, flags map[string]string) error {
	merged := make(map[string]any)
	for name, value := range flags {
		key, ok := findKey(name)
		if !ok {
			return unknown("flag", name, keyNames())
		}
		v, err := parse(key, value)
		if err != nil {
			return &Error{Key: name, Source: "--" + key.Flag(), Reason: err.Error()}
		}
		merged[name] = v
	}
	return k.Load(confmap.Provider(merged, "."), nil)
}

func unknown(source, name string, known []string) error {
	return &Error{Key: name, Source: source, Reason: fmt.Sprintf("unknown; did you mean %s?", nearest(name, known))}
}

func keyNames() []string {
	var names []string
	for _, key := range Keys() {
		names = append(names, key.Name)
	}
	return names
}

// parse reads a value from a variable or a flag.
func parse(key Key, s string) (any, error) {
	switch key.kind {
	case boolean:
		v, err := strconv.ParseBool(s)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", s)
		}
		return v, nil
	case integer:
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", s)
		}
		return v, nil
	case number:
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%q is not a number", s)
		}
		return v, nil
	case list:
		return parseList(s)
	default:
		return s, nil
	}
}

// parseList reads a JSON array of strings or a list separated by commas; an
// empty string is an empty list.
func parseList(s string) ([]string, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "[") {
		var items []string
		if err := json.Unmarshal([]byte(s), &items); err != nil {
			return nil, errors.New("not a JSON array of strings")
		}
		return items, nil
	}
	items := []string{}
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items, nil
}

// convert checks a value from the TOML file.
func convert(key Key, v any) (any, error) {
	switch key.kind {
	case text:
		if s, ok := v.(string); ok {
			return s, nil
		}
		return nil, errors.New("must be a string")
	case boolean:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		return nil, errors.New("must be true or false")
	case integer:
		if n, ok := v.(int64); ok {
			return n, nil
		}
		return nil, errors.New("must be a whole number")
	case number:
		switch n := v.(type) {
		case int64:
			return float64(n), nil
		case float64:
			if !math.IsNaN(n) && !math.IsInf(n, 0) {
				return n, nil
			}
		}
		return nil, errors.New("must be a number")
	default:
		items, ok := v.([]any)
		if !ok {
			return nil, errors.New("must be an array of strings")
		}
		out := []string{}
		for _, item := range items {
			s, ok := item.(string)
			if !ok {
				return nil, errors.New("must be an array of strings")
			}
			out = append(out, s)
		}
		return out, nil
	}
}

func lookup(environ []string, name string) string {
	for _, pair := range environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v
		}
	}
	return ""
}
