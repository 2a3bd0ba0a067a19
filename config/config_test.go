package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func input(t *testing.T, file string, env ...string) Input {
	t.Helper()
	in := Input{Environ: env, Home: "/home/pi", UID: 1000, Hostname: "bench"}
	if file != "" {
		in.File = filepath.Join(t.TempDir(), "farhandd.toml")
		if err := os.WriteFile(in.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

func TestDefaults(t *testing.T) {
	c, err := Load(input(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.WebSocket(), "wss://platform.autogpt.net/ws/local-executor"; got != want {
		t.Errorf("WebSocket = %s, want %s", got, want)
	}
	if c.ShellEnabled || c.LLM.Enabled || c.Sim || !c.HardwareEnabled || c.HardwareAllow != nil {
		t.Errorf("defaults give too much or too little: %+v", c)
	}
	want := Limits{MaxConcurrent: 4, MaxFileSize: 10485760, CommandTimeout: 30 * time.Second, CommandsPerMinute: 60}
	if diff := cmp.Diff(want, c.Limits); diff != "" {
		t.Error(diff)
	}
	if c.StateDir != "/home/pi/.local/state/farhand" || !c.DefaultRoot || !cmp.Equal(c.Roots, []string{"/home/pi/farhand"}) || c.DisplayName != "bench" {
		t.Errorf("places: %+v", c)
	}
}

func TestPrecedence(t *testing.T) {
	in := input(t, "display_name = \"file\"\nroots = [\"/srv/a\"]\n[limits]\nmax_concurrent = 2\nmax_commands_per_minute = 7\n[shell]\nenabled = true\n",
		"FARHAND_LIMITS_MAX_CONCURRENT=3", "FARHAND_ROOTS=/srv/b, ~/c", "FARHAND_HARDWARE_ALLOW=[\"serial:*\",\"gpio:a,b\"]", "FARHAND_RELAY_LISTEN=x", "PATH=/bin")
	in.Flags = map[string]string{"limits.max_concurrent": "5"}
	c, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	if c.Limits.MaxConcurrent != 5 || c.Limits.CommandsPerMinute != 7 || c.DisplayName != "file" || !c.ShellEnabled {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff([]string{"/srv/b", "/home/pi/c"}, c.Roots); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"serial:*", "gpio:a,b"}, c.HardwareAllow); diff != "" {
		t.Error(diff)
	}
}

func TestAbsentDiffersFromEmpty(t *testing.T) {
	c, err := Load(input(t, "[hardware]\nallow = []\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.HardwareAllow == nil || len(c.HardwareAllow) != 0 {
		t.Errorf("an empty allow list must allow nothing, got %#v", c.HardwareAllow)
	}
}

// A table with nothing in it, as when all its lines are commented out, is none.
func TestEmptyTable(t *testing.T) {
	c, err := Load(input(t, "[limits]\n[shell]\n"))
	if err != nil || c.ShellEnabled || c.Limits.MaxConcurrent != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  []string
		key  string
		says string
	}{
		"unknown key":         {file: "[shell]\nenable = true\n", key: "shell.enable", says: "shell.enabled"},
		"unknown table":       {file: "[shel]\n", key: "shel"},
		"table for a key":     {file: "[sim]\n", key: "sim", says: "true or false"},
		"unknown variable":    {env: []string{"FARHAND_SHELL_ENABLE=1"}, key: "FARHAND_SHELL_ENABLE", says: "FARHAND_SHELL_ENABLED"},
		"plain remote http":   {file: "platform_url = \"http://example.org\"", key: "platform_url", says: "https"},
		"plain remote ws":     {file: "platform_url = \"ws://192.0.2.1:80\"", key: "platform_url", says: "https"},
		"no scheme":           {file: "platform_url = \"example.org\"", key: "platform_url", says: "scheme"},
		"query in URL":        {file: "platform_url = \"https://example.org/?a=b\"", key: "platform_url"},
		"string for a bool":   {file: "sim = \"yes\"", key: "sim", says: "true or false"},
		"bool in environment": {env: []string{"FARHAND_SIM=maybe"}, key: "sim"},
		"float for an int":    {file: "[limits]\nmax_concurrent = 2.5", key: "limits.max_concurrent", says: "whole"},
		"zero concurrency":    {file: "[limits]\nmax_concurrent = 0", key: "limits.max_concurrent", says: "between"},
		"negative timeout":    {file: "[limits]\ncommand_timeout_seconds = -1", key: "limits.command_timeout_seconds"},
		"NaN":                 {file: "[limits]\ncommand_timeout_seconds = nan", key: "limits.command_timeout_seconds"},
		"relative root":       {file: "roots = [\"work\"]", key: "roots", says: "absolute"},
		"number in a list":    {file: "roots = [1]", key: "roots", says: "strings"},
		"machine id":          {file: "machine_id = \"_x\"", key: "machine_id"},
		"pin":                 {file: "[tls]\npin_sha256 = \"abc\"", key: "tls.pin_sha256"},
		"not TOML":            {file: "roots = [", says: "configuration"},
		"broken list":         {env: []string{"FARHAND_ROOTS=[\"a\""}, key: "roots"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(input(t, c.file, c.env...))
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("got %v, want a configuration error", err)
			}
			if e.Key != c.key {
				t.Errorf("key %q, want %q", e.Key, c.key)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q doesn't say %q", err, c.says)
			}
		})
	}
}

func TestNamedFileMustExist(t *testing.T) {
	in := input(t, "")
	in.File = filepath.Join(t.TempDir(), "absent.toml")
	if _, err := Load(in); err == nil {
		t.Error("a file that was named and is missing must be an error")
	}
}

func TestDefaultFile(t *testing.T) {
	for _, c := range []struct {
		in   Input
		want string
	}{
		{Input{UID: 0}, "/etc/farhand/farhandd.toml"},
		{Input{UID: 7, Environ: []string{"INVOCATION_ID=1"}}, "/etc/farhand/farhandd.toml"},
		{Input{UID: 7, Home: "/h"}, "/h/.config/farhand/farhandd.toml"},
		{Input{UID: 7, Home: "/h", Environ: []string{"XDG_CONFIG_HOME=/x"}}, "/x/farhand/farhandd.toml"},
	} {
		if got := DefaultFile(c.in); got != c.want {
			t.Errorf("DefaultFile(%+v) = %s, want %s", c.in, got, c.want)
		}
	}
}

func TestPrinters(t *testing.T) {
	c, err := Load(input(t, "[hardware]\nprinters = [\"ender=http://10.0.0.7\", \"voron = https://home.example/octo/\"]\nprinter_keys = [\"voron=~/voron.key\"]\nprinter_discovery = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Printers) != 2 || !c.PrinterDiscovery || c.Printers[0].URL.String() != "http://10.0.0.7" || c.Printers[0].KeyFile != "" ||
		c.Printers[1].Name != "voron" || c.Printers[1].URL.Path != "/octo/" || !strings.HasSuffix(c.Printers[1].KeyFile, "/voron.key") {
		t.Errorf("printers %+v, discovery %v", c.Printers, c.PrinterDiscovery)
	}
	for _, bad := range []string{
		`printers = ["http://10.0.0.7"]`, `printers = ["a=ftp://x"]`, `printers = ["a=http://user:pw@x"]`, `printers = ["usb-a=http://x"]`,
		`printers = ["a=http://x", "a=http://y"]`, `printers = ["a b=http://x"]`, `printer_keys = ["a=/k"]`,
		"printers = [\"a=http://x\"]\nprinter_keys = [\"SECRET0123\"]", "printers = [\"a=http://x\"]\nprinter_keys = [\"a=relative\"]",
	} {
		_, err := Load(input(t, "[hardware]\n"+bad+"\n"))
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%s: %v", bad, err)
		} else if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: the error repeats a secret: %v", bad, err)
		}
	}
}

// Every key must be settable by each of the three ways it is documented for.
func TestEveryKeyHasEnvAndFlag(t *testing.T) {
	seen := make(map[string]string)
	for _, k := range Keys() {
		for _, n := range []string{k.Env(), k.Flag()} {
			if other, dup := seen[n]; dup {
				t.Errorf("%s names both %s and %s", n, other, k.Name)
			}
			seen[n] = k.Name
		}
		if k.Doc == "" {
			t.Errorf("%s has no documentation", k.Name)
		}
		if foreign(k.Env()) {
			t.Errorf("%s would be ignored as a sister program's", k.Env())
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("platform_url = \"https://example.org\"\n[limits]\nmax_concurrent = 2\n"))
	f.Add([]byte("roots = [\"/a\", \"~\"]\n[hardware]\nallow = []\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Skip("cannot write")
		}
		c, err := Load(Input{File: path, Home: "/h", Hostname: "x"})
		if err == nil && (c.Platform == nil || c.Limits.MaxConcurrent < 1 || c.StateDir == "") {
			t.Errorf("accepted without the essentials: %+v", c)
		}
	})
}

func TestDocumentationNamesEveryKey(t *testing.T) {
	b, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		if !strings.Contains(string(b), "| `"+k.Name+"` | `"+k.Env()+"` |") {
			t.Errorf("docs/configuration.md has no row for %s", k.Name)
		}
	}
}

func TestChanged(t *testing.T) {
	file := "log_level = \"info\"\nroots = [\"/srv/a\"]\n"
	a, err := Load(input(t, file))
	if err != nil {
		t.Fatal(err)
	}
	same, err := Load(input(t, file))
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Changed(same); len(got) != 0 {
		t.Errorf("nothing changed but %q", got)
	}
	b, err := Load(input(t, "log_level = \"debug\"\nroots = [\"/srv/b\"]\n[shell]\nhelper = \"/run/x.sock\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"log_level", "roots", "shell.helper"}, a.Changed(b)); diff != "" {
		t.Error(diff)
	}
	if b.ShellHelper != "/run/x.sock" {
		t.Errorf("shell.helper is %q", b.ShellHelper)
	}
}

func TestShellHelperMustBeAbsolute(t *testing.T) {
	_, err := Load(input(t, "[shell]\nhelper = \"exec.sock\"\n"))
	var e *Error
	if !errors.As(err, &e) || e.Key != "shell.helper" {
		t.Errorf("%v", err)
	}
}

func TestTextReadsBack(t *testing.T) {
	flags := map[string]string{
		"platform_url": "https://relay.example.org", "roots": `["/srv/a,b","/srv/\"c\""]`, "shell.enabled": "true", "state_dir": "/var/lib/farhand",
		"hardware.lease_idle_seconds": "2.5", "limits.max_concurrent": "7", "hardware.allow": "gpio:*;lines=GPIO17", "display_name": "<bench> ü",
	}
	text, err := Text(flags)
	if err != nil {
		t.Fatal(err)
	}
	in := input(t, "")
	in.Flags = flags
	want, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(input(t, text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if changed := want.Changed(got); len(changed) != 0 {
		t.Errorf("%q differ:\n%s", changed, text)
	}
	if _, err := Text(map[string]string{"rots": "/srv"}); err == nil || !strings.Contains(err.Error(), "roots") {
		t.Errorf("%v", err)
	}
	if _, err := Text(map[string]string{"limits.max_concurrent": "many"}); err == nil {
		t.Error("written")
	}
}

func TestPrivate(t *testing.T) {
	load := func(entries string) (Config, error) {
		t.Helper()
		return Load(Input{Environ: []string{"FARHAND_PRIVACY_PRIVATE=" + entries}, Home: "/home/pi", Hostname: "pi", UID: 1000})
	}
	c, err := load(`["/srv/a", "~/b/*.key;names=shown", "/c/**;schema=named;names=shown"]`)
	if err != nil || len(c.Privacy.Private) != 3 || c.Privacy.AnswerChars != 2000 || c.Privacy.Release || c.Privacy.ReleaseTimeout != 10*time.Minute {
		t.Fatalf("%+v, %v", c.Privacy, err)
	}
	p := c.Privacy.Private
	if p[0].Named || p[0].Shown || p[1].Pattern.String() != "/home/pi/b/*.key" || p[1].Named || !p[1].Shown || !p[2].Named || !p[2].Shown {
		t.Errorf("%+v", p)
	}
	many := strings.Repeat(`"/a",`, maxPrivate+1)
	for _, entries := range []string{
		`[""]`, `["relative"]`, `["/"]`, `["/a/../b"]`, `["/a;names=hidden"]`, `["/a;"]x`, `["/a;schema=named;"]`, `[` + many[:len(many)-1] + `]`,
	} {
		if c, err := load(entries); err == nil {
			t.Errorf("%s gives %+v", entries, c.Privacy.Private)
		}
	}
	for _, env := range []string{"FARHAND_PRIVACY_ANSWER_CHARS=0", "FARHAND_PRIVACY_ANSWER_CHARS=65537", "FARHAND_PRIVACY_RELEASE_TIMEOUT_SECONDS=0"} {
		if _, err := Load(Input{Environ: []string{env}, Home: "/home/pi", Hostname: "pi", UID: 1000}); err == nil {
			t.Errorf("%s was taken", env)
		}
	}
}
