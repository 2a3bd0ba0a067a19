package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"farhand/client"
	"farhand/internal/atomicfile"
	"farhand/internal/version"
)

// login is what the configuration remembers: one relay and how to be somebody
// there. The file is readable by its user alone.
type login struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	CASHA256 string `json:"ca_sha256,omitempty"`
	Owner    string `json:"owner,omitempty"` // for people
}

// maxConfig bounds the configuration and every file with a secret in it.
const maxConfig = 64 << 10

// configPath is --config, or farhand.json in $FARHAND_CONFIG_DIR, or
// farhand/farhand.json in $XDG_CONFIG_HOME, on Windows in %AppData%, else in
// ~/.config.
func (a *app) configPath() (string, error) {
	if a.config != "" {
		return a.config, nil
	}
	if dir := a.env.Getenv("FARHAND_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, "farhand.json"), nil
	}
	dir := a.env.Getenv("XDG_CONFIG_HOME")
	if dir == "" && runtime.GOOS == "windows" {
		dir = a.env.Getenv("AppData")
	}
	if dir == "" {
		if a.env.Home == "" {
			return "", errors.New("no home directory: name the configuration with --config FILE")
		}
		dir = filepath.Join(a.env.Home, ".config")
	}
	return filepath.Join(dir, "farhand", "farhand.json"), nil
}

// load reads the configuration. None is an empty login.
func (a *app) load() (login, error) {
	var l login
	path, err := a.configPath()
	if err != nil {
		return l, nil // everything may come from the environment
	}
	b, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		a.note("Others may read the token in %s: chmod 600 it, or log in again after farhand logout.", path)
	}
	if err != nil {
		return l, fmt.Errorf("configuration: %w", err)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("configuration %s is damaged (%v): log in again with farhand login URL", path, err)
	}
	return l, nil
}

func (a *app) save(l login) error {
	path, err := a.configPath()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := atomicfile.Write(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// forget removes the configuration.
func (a *app) forget() error {
	path, err := a.configPath()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// who decides which relay to ask and as whom: --relay, then the environment,
// then the configuration. A remembered token or pin goes to the relay that it
// was remembered for and to no other.
func (a *app) who() (login, error) {
	kept, err := a.load()
	if err != nil {
		return login{}, err
	}
	l := login{
		URL:      first(a.relay, a.env.Getenv("FARHAND_URL"), kept.URL),
		Token:    strings.TrimSpace(a.env.Getenv("FARHAND_TOKEN")),
		CASHA256: a.env.Getenv("FARHAND_CA_SHA256"),
	}
	if l.URL == "" {
		return login{}, errNotLoggedIn
	}
	if file := a.env.Getenv("FARHAND_TOKEN_FILE"); l.Token == "" && file != "" {
		b, err := readSmall(file)
		if err != nil {
			return login{}, fmt.Errorf("FARHAND_TOKEN_FILE: %w", err)
		}
		l.Token = firstLine(b)
	}
	if sameRelay(l.URL, kept.URL) {
		l.Token = first(l.Token, kept.Token)
		l.CASHA256 = first(l.CASHA256, kept.CASHA256)
		l.Owner = kept.Owner
	}
	if l.Token == "" {
		return login{}, fmt.Errorf("%w to %s", errNotLoggedIn, clean(l.URL))
	}
	return l, nil
}

// connect makes the client of this run. The caller closes it.
func (a *app) connect() (*client.Client, error) {
	l, err := a.who()
	if err != nil {
		return nil, err
	}
	return a.client(l)
}

func (a *app) client(l login) (*client.Client, error) {
	c, err := client.New(client.Config{
		URL: l.URL, Token: l.Token, CASHA256: l.CASHA256, Agent: "farhand/" + version.String(),
	})
	if err != nil {
		return nil, usage("%v", err)
	}
	return c, nil
}

func sameRelay(a, b string) bool {
	x, err := client.ParseURL(a)
	if err != nil {
		return false
	}
	y, err := client.ParseURL(b)
	return err == nil && x.String() == y.String()
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// readSmall reads a file that has to be small.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfig {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxConfig)
	}
	return b, nil
}

// firstLine is a secret as it stands in a file.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSuffix(line, "\r")
}
