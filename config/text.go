package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Text is a configuration file with these values, each as a flag has it. It reads
// back as the same configuration.
func Text(values map[string]string) (string, error) {
	tables := make(map[string][]string) // lines by table; "" comes first
	for _, key := range Keys() {
		s, ok := values[key.Name]
		if !ok {
			continue
		}
		v, err := parse(key, s)
		if err != nil {
			return "", &Error{Key: key.Name, Source: "--" + key.Flag(), Reason: err.Error()}
		}
		written, err := toTOML(v)
		if err != nil {
			return "", fmt.Errorf("write %s: %w", key.Name, err)
		}
		table, name, found := strings.Cut(key.Name, ".")
		if !found {
			table, name = "", key.Name
		}
		tables[table] = append(tables[table], name+" = "+written)
	}
	for name := range values {
		if _, ok := findKey(name); !ok {
			return "", unknown("flag", name, keyNames())
		}
	}
	var names []string
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		if name != "" {
			fmt.Fprintf(&b, "\n[%s]\n", name)
		}
		b.WriteString(strings.Join(tables[name], "\n") + "\n")
	}
	return b.String(), nil
}

// toTOML writes a value as JSON, which in strings, numbers, truth values and arrays
// of strings is TOML, too.
func toTOML(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
