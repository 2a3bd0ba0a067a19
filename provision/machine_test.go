package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/provision/fat"
	"farhand/provision/hardware"
)

const goodKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@desk"

// machine is an appliance in a directory.
type machine struct {
	*System
	t        testing.TB
	card     string // the directory of the first partition
	slot     string // that of the running slot's boot partition
	hostname string
	mu       sync.Mutex
	ran      []string
	clock    *fakeClock
}

type fakeClock struct {
	booted time.Time
	now    time.Time
	sync   bool
	set    []time.Time
}

func (c *fakeClock) Now() time.Time        { return c.now }
func (c *fakeClock) Uptime() time.Duration { return time.Since(c.booted) }
func (c *fakeClock) Synchronised() bool    { return c.sync }
func (c *fakeClock) Set(t time.Time) error {
	c.now, c.set = t, append(c.set, t)
	return nil
}

const goodChoiceText = "[all]\ntryboot_a_b=1\nboot_partition=2\n[tryboot]\nboot_partition=3\n"

// newMachine is a Pi 4 with a fresh card.
func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{t: t, card: t.TempDir(), slot: t.TempDir(), clock: &fakeClock{booted: time.Now(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}}
	m.System = &System{
		Root: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Card: &fat.Directory{Path: m.card}, Slot: &fat.Directory{Path: m.slot},
		Chown:       func(string, int, int) error { return nil },
		SetHostname: func(name string) error { m.hostname = name; return nil },
		Clock:       m.clock,
	}
	m.Run = m.run
	for path, text := range map[string]string{
		"/etc/passwd":                       "root:x:0:0::/root:/bin/bash\noperator:x:901:902::/:/bin/bash\n",
		"/etc/group":                        "root:x:0:\nsudo:x:27:\ngpio:x:910:\n",
		"/etc/machine-id":                   "0123456789abcdef0123456789abcdef\n",
		"/usr/share/zoneinfo/Europe/Berlin": "TZif",
		"/proc/device-tree/serial-number":   "10000000abcd12ef\x00",
		"/proc/device-tree/compatible":      "raspberrypi,4-model-b\x00brcm,bcm2711\x00",
		"/run/farhand/slot":                 "slot=a\nboot=2\nsystem=5\nsource=bootloader\n",
		"/data/system/machine-id":           "0123456789abcdef0123456789abcdef\n",
		"/var/lib/iwd/":                     "",
	} {
		m.write(path, text)
	}
	m.onCard("autoboot.txt", goodChoiceText)
	m.onCard("bootcode.bin", "firmware")
	m.onSlot(hardware.IncludeFile, string(hardware.Include(nil)))
	for _, o := range hardware.Overlays() {
		m.onSlot("overlays/"+o+".dtbo", "overlay")
	}
	return m
}

// run stands for the image's programs.
func (m *machine) run(_ context.Context, name string, args ...string) error {
	m.mu.Lock()
	m.ran = append(m.ran, strings.Join(append([]string{name}, args...), " "))
	m.mu.Unlock()
	if name == "ssh-keygen" {
		path := args[len(args)-1]
		if _, err := os.Stat(path); err == nil {
			return errors.New("it would ask whether to overwrite")
		}
		return errors.Join(os.WriteFile(path, []byte("private"), 0o600), os.WriteFile(path+".pub", []byte("public"), 0o644))
	}
	return nil
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	full := m.path(path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if strings.HasSuffix(path, "/") {
		full += "/"
		if err := os.MkdirAll(full, 0o755); err != nil {
			m.t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) onCard(name, text string) { m.t.Helper(); put(m.t, m.card, name, text) }
func (m *machine) onSlot(name, text string) { m.t.Helper(); put(m.t, m.slot, name, text) }

// boot boots as a machine does whose /run is empty but for what the initramfs
// left.
func (m *machine) boot() Outcome {
	m.t.Helper()
	out, err := m.reboot()
	if err != nil {
		m.t.Errorf("boot: %v", err)
	}
	return out
}

func (m *machine) reboot() (Outcome, error) {
	m.t.Helper()
	slot, trouble := m.System.read(slotFile), m.System.read(dataError)
	if err := os.RemoveAll(m.path("/run")); err != nil {
		m.t.Fatal(err)
	}
	m.write(slotFile, slot+"\n")
	if trouble != "" {
		m.write(dataError, trouble)
	}
	m.ran = nil
	return m.Boot(m.t.Context())
}

// file is a file's text; "(none)" if it isn't there.
func (m *machine) file(path string) string {
	m.t.Helper()
	return text(m.t, m.path(path))
}

func text(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (m *machine) names() string {
	m.t.Helper()
	entries, err := os.ReadDir(m.card)
	if err != nil {
		m.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func (m *machine) stored() store {
	m.t.Helper()
	st, err := loadStore(m.path(dataDir, storeName))
	if err != nil {
		m.t.Fatal(err)
	}
	return st
}

// told says whether the boot's report has an item with that outcome.
func (m *machine) told(item, outcome string) bool {
	m.t.Helper()
	r, err := m.loadReport()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, i := range r.Report {
		if i.Item == item && i.Outcome == outcome {
			return true
		}
	}
	m.t.Logf("report: %v", r.Report)
	return false
}

func (m *machine) did(command string) bool { return slices.Contains(m.ran, command) }

// snapshot is everything that lasts, but for what is random.
func (m *machine) snapshot() string {
	m.t.Helper()
	var b strings.Builder
	for _, root := range []string{m.card, m.slot, m.path("/data")} {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content := text(m.t, path)
			if d.Name() == storeName {
				st := m.stored()
				st.Passphrase = fmt.Sprint(len(st.Passphrase))
				plain, err := json.MarshalIndent(st, "", " ")
				if err != nil {
					return err
				}
				content = string(plain)
			}
			fmt.Fprintf(&b, "%s: %s\n", strings.TrimPrefix(path, root), content)
			return nil
		}); err != nil {
			m.t.Fatal(err)
		}
	}
	return b.String()
}
