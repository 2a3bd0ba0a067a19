package provision

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/internal/testenv"
	"farhand/provision/grubenv"
	"farhand/provision/hardware"
	"farhand/provision/preseed"
)

const (
	somePreseed = `config_version = "1.0"
[system]
hostname = "bench"
[user]
name = "ada"
password = "$6$salt$0123456789abcdef"
password_encrypted = true
groups = ["sudo", "gpio"]
[ssh]
enabled = true
authorized_keys = ["` + goodKey + `"]
[wlan]
ssid = "net"
password = "correct horse"
country = "DE"
[locale]
timezone = "Europe/Berlin"
`
	someFarhand = `relay = "https://relay.example"
claim_key = "fhc_0123456789abcdef"
roots = ["/data/work/a/b", "/data/private/x"]
shell = true
[privacy]
private = ["/data/private/x;schema=named", "/data/private/*.key", "/data/elsewhere"]
[sudo]
operator = true
`
)

func withCard(t testing.TB) *machine {
	m := newMachine(t)
	m.onCard(preseed.PreseedFile, somePreseed)
	m.onCard(preseed.FarhandFile, someFarhand)
	return m
}

func TestFirstBoot(t *testing.T) {
	m := withCard(t)
	if out := m.boot(); out.Restart != "" {
		t.Errorf("restart: %s", out.Restart)
	}
	if names := m.names(); names != "autoboot.txt bootcode.bin" {
		t.Errorf("the card has %s", names)
	}
	if m.hostname != "bench" {
		t.Errorf("host name %q", m.hostname)
	}
	if key := m.file("/data/farhand/state/claim-key"); key != "fhc_0123456789abcdef\n" {
		t.Errorf("claim key %q", key)
	}
	config := m.file("/run/farhand/config.toml")
	for _, want := range []string{`platform_url = "https://relay.example"`, `claim_key_file = "/data/farhand/state/claim-key"`, `roots = ["/data/work/a/b", "/data/private/x"]`, `private = ["/data/private/x;schema=named", "/data/private/*.key", "/data/elsewhere"]`, "[shell]\nenabled = true"} {
		if !strings.Contains(config, want) {
			t.Errorf("the daemon's configuration lacks %s:\n%s", want, config)
		}
	}
	for path, want := range map[string]string{
		"/var/lib/iwd/net.psk":                                 "Passphrase=correct horse",
		"/run/userdb/ada.user-privileged":                      goodKey,
		"/run/farhand/sudoers.d/farhand":                       "operator ALL=",
		"/run/systemd/system/farhand-exec.service.d/sudo.conf": "NoNewPrivileges=no",
		"/data/system/autoboot.txt":                            goodChoiceText,
		"/data/system/ssh/ssh_host_ed25519_key":                "private",
		"/data/system/ssh/ssh_host_ed25519_key.pub":            "public",
	} {
		if got := m.file(path); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, dir := range []string{"/data/work/a/b", "/data/home/ada"} {
		if info, err := os.Stat(m.path(dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range []string{"/data/private", "/data/private/x"} {
		if info, err := os.Stat(m.path(dir)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	if _, err := os.Stat(m.path("/data/elsewhere")); err == nil {
		t.Error("a directory beside those that are private was made")
	}
	for _, command := range []string{"systemctl start --no-block ssh.service", "systemctl daemon-reload"} {
		if !m.did(command) {
			t.Errorf("%s wasn't run: %q", command, m.ran)
		}
	}
	if info, err := os.Stat(m.path("/data/farhand/provision.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the store: %v, %v", info, err)
	}

	// The next boots render the same and touch nothing that lasts.
	before := m.snapshot()
	config = m.file("/run/farhand/config.toml")
	for range 2 {
		m.boot()
	}
	if d := cmp.Diff(before, m.snapshot()); d != "" {
		t.Errorf("another boot changes (-before +after):\n%s", d)
	}
	if d := cmp.Diff(config, m.file("/run/farhand/config.toml")); d != "" {
		t.Errorf("another configuration:\n%s", d)
	}
	if m.did("ssh-keygen -q") || strings.Contains(strings.Join(m.ran, "\n"), "ssh-keygen") {
		t.Error("another host key")
	}
	// When the daemon has used its key, nobody speaks of one.
	if err := os.Remove(m.path("/data/farhand/state/claim-key")); err != nil {
		t.Fatal(err)
	}
	m.boot()
	if strings.Contains(m.file("/run/farhand/config.toml"), "claim_key_file") || m.file("/data/farhand/state/claim-key") != "(none)" {
		t.Error("a claim key that was used is back")
	}
}

func TestNothingOnTheCard(t *testing.T) {
	m := newMachine(t)
	m.boot()
	if m.hostname != "farhand-cd12ef" {
		t.Errorf("host name %q", m.hostname)
	}
	if m.did("systemctl start --no-block ssh.service") {
		t.Error("SSH runs though nobody asked for it")
	}
	if got := m.file("/data/system/ssh/ssh_host_ed25519_key"); got != "(none)" {
		t.Errorf("host key: %s", got)
	}
	if p := m.stored().Passphrase; len(p) != preseed.RescueLength {
		t.Errorf("rescue passphrase %q", p)
	}
	if !strings.Contains(m.file("/run/farhand/config.toml"), `roots = ["/data/work"]`) {
		t.Error("no default root")
	}
}

type powerCut struct{ at string }

// cutAt boots, and the power goes at the given step. It says which that was;
// empty: the boot had fewer.
func (m *machine) cutAt(n int) (where string) {
	m.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			cut, ok := r.(powerCut)
			if !ok {
				panic(r)
			}
			where = cut.at
		}
		m.step = nil
	}()
	m.step = func(what string) {
		if n--; n < 0 {
			panic(powerCut{what})
		}
	}
	_, _ = m.reboot() // judged by what is left
	return ""
}

// A power cut at any step of the first boot, and another one at any step of the
// boot after it, leave nothing that a third boot doesn't complete.
func TestPowerCuts(t *testing.T) {
	fresh := func(t *testing.T) *machine {
		m := withCard(t)
		m.onCard("config.txt", "kernel=x")
		m.onCard("autoboot.txt", "\x00garbage")
		m.onCard("user-data", "secret")
		m.onCard(preseed.FarhandFile, someFarhand+"[buses]\nw1 = true\n")
		return m
	}
	whole := fresh(t)
	if out := whole.boot(); out.Restart == "" {
		t.Fatal("other buses and no restart")
	}
	if out := whole.boot(); out.Restart != "" {
		t.Fatal("restarts for ever")
	}
	want := whole.snapshot()
	steps := 0
	for first := 0; ; first++ {
		m := fresh(t)
		where := m.cutAt(first)
		if where == "" {
			break
		}
		steps++
		for second := 0; ; second++ {
			m := fresh(t)
			m.cutAt(first)
			also := m.cutAt(second)
			for range 3 { // the second one may ask for a restart
				m.boot()
			}
			if d := cmp.Diff(want, m.snapshot()); d != "" {
				t.Errorf("cut at %q and %q (-want +got):\n%s", where, also, d)
			}
			if also == "" || t.Failed() {
				break
			}
		}
	}
	if steps < 10 {
		t.Errorf("only %d steps were cut at", steps)
	}
}

// A file that was overwritten and not yet removed when the power went isn't
// taken for new settings.
func TestCutWhileShredding(t *testing.T) {
	var m *machine
	for n := 0; ; n++ {
		m = withCard(t)
		if where := m.cutAt(n); where == "shred "+preseed.PreseedFile {
			break
		} else if where == "" {
			t.Fatal("nothing is shredded")
		}
	}
	m.onCard(preseed.PreseedFile, strings.Repeat("\x00", len(somePreseed)))
	m.boot()
	if names := m.names(); names != "autoboot.txt bootcode.bin" || m.hostname != "bench" {
		t.Errorf("card: %s, host name %q", names, m.hostname)
	}
}

func TestLaterFilesAreNotApplied(t *testing.T) {
	m := withCard(t)
	m.boot()
	m.onCard("RPI-PRESEED.TOML", "[system]\nhostname = \"other\"\n")
	m.boot()
	if m.hostname != "bench" || !m.told("RPI-PRESEED.TOML", preseed.Ignored) {
		t.Errorf("host name %q", m.hostname)
	}
	if !strings.Contains(m.names(), "RPI-PRESEED.TOML") {
		t.Error("a file that wasn't applied was removed")
	}
}

// Field case 84: the kernel argument that Imager 1 leaves is gone, the script is
// read and not run.
func TestFirstrunIsNeutralised(t *testing.T) {
	m := newMachine(t)
	m.onCard("firstrun.sh", "#!/bin/bash\n/usr/lib/raspberrypi-sys-mods/imager_custom set_hostname bench\n")
	m.onCard("cmdline.txt", "cfg80211.ieee80211_regdom=GB systemd.run=/boot/firstrun.sh systemd.unit=kernel-command-line.target")
	m.boot()
	if names := m.names(); names != "autoboot.txt bootcode.bin" || m.hostname != "bench" || m.stored().Settings.Country != "GB" {
		t.Errorf("card: %s, host name %q", names, m.hostname)
	}
	if !m.told("cmdline.txt", preseed.Removed) {
		t.Error("not told")
	}
	m.onCard("cmdline.txt", "systemd.run=/boot/x") // at any later time, too
	m.boot()
	if names := m.names(); names != "autoboot.txt bootcode.bin" {
		t.Errorf("card: %s", names)
	}
}

// Field case 66: nothing on the first partition looks like a system, and
// autoboot.txt is as it was last good.
func TestFirstPartitionStaysUnbootable(t *testing.T) {
	m := newMachine(t)
	swapped := strings.NewReplacer("=2", "=3", "=3", "=2").Replace(goodChoiceText)
	m.onCard("autoboot.txt", swapped)
	for _, name := range []string{"config.txt", "start4.elf", "Fixup4.dat", "kernel8.img"} {
		m.onCard(name, "x")
	}
	m.onCard("README.TXT", "x")
	m.boot()
	if names := m.names(); names != "README.TXT autoboot.txt bootcode.bin" {
		t.Errorf("card: %s", names)
	}
	if !m.told("config.txt", preseed.Removed) {
		t.Error("not told")
	}
	for _, damaged := range []string{"", "boot_partition=9\n", strings.Repeat("\x00", 512), strings.Repeat("x", 600)} {
		m.onCard("autoboot.txt", damaged)
		m.boot()
		if got := text(t, m.card+"/autoboot.txt"); got != swapped {
			t.Errorf("%.20q: %q", damaged, got)
		}
	}
	if err := errors.Join(os.Remove(m.card+"/autoboot.txt"), os.Remove(m.path(systemData+"/autoboot.txt"))); err != nil {
		t.Fatal(err)
	}
	m.boot()
	if got := text(t, m.card+"/autoboot.txt"); got != goodChoiceText || !m.told("autoboot.txt", preseed.Changed) {
		t.Errorf("%q", got)
	}
}

// On a machine with UEFI it is GRUB that chooses, and another file that says what.
func TestSlotOfGRUBIsRepaired(t *testing.T) {
	m := newMachine(t)
	m.write(slotFile, "slot=b\nboot=3\nsystem=6\nsource=cmdline\n")
	if err := os.Remove(m.card + "/autoboot.txt"); err != nil {
		t.Fatal(err)
	}
	b := string(grubenv.Choice{Slot: "b"}.Marshal())
	m.onCard(grubenv.File, b)
	m.boot()
	for _, damaged := range []string{"", strings.Repeat("\x00", grubenv.Size), b[:512]} {
		m.onCard(grubenv.File, damaged)
		m.boot()
		if got := text(t, m.card+"/"+grubenv.File); got != b || !m.told(grubenv.File, preseed.Changed) {
			t.Errorf("%.20q: %.60q", damaged, got)
		}
	}
	if err := errors.Join(os.Remove(m.card+"/"+grubenv.File), os.Remove(m.path(systemData+"/"+grubenv.File))); err != nil {
		t.Fatal(err)
	}
	m.boot()
	if got := text(t, m.card+"/"+grubenv.File); got != string(grubenv.Choice{Slot: "a"}.Marshal()) {
		t.Errorf("%.60q", got)
	}
	if names := m.names(); names != "bootcode.bin "+grubenv.File {
		t.Errorf("card: %s", names)
	}
}

// Notepad puts .txt behind a name, and Windows hides it: the file is what it was
// meant to be, beside the example that an image comes with, too.
func TestFilesWithTxtBehindThem(t *testing.T) {
	for name, c := range map[string]struct{ proper, hostname, outcome string }{
		"alone":                {"", "notepad", preseed.Changed},
		"beside an example":    {"# hostname = \"x\"\r\n\r\n", "notepad", preseed.Changed},
		"beside one with more": {"[system]\nhostname = \"bench\"\n", "bench", preseed.Ignored},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if c.proper != "" {
				m.onCard("rpi-preseed.toml", c.proper)
			}
			m.onCard("rpi-preseed.toml.txt", "[system]\r\nhostname = \"notepad\"\r\n")
			m.onCard("Farhand.toml.TXT", "\ufeffname = \"by Notepad\"\r\n")
			m.boot()
			if s := m.stored().Settings; s.Hostname != c.hostname || s.Farhand.Name != "by Notepad" {
				t.Errorf("%+v", s)
			}
			if !m.told("rpi-preseed.toml.txt", c.outcome) || !m.told("Farhand.toml.TXT", preseed.Changed) {
				t.Error("not told")
			}
			if names := m.names(); names != "autoboot.txt bootcode.bin" {
				t.Errorf("secrets are left on the card: %s", names)
			}
		})
	}
}

func TestOtherSystemsFiles(t *testing.T) {
	m := newMachine(t)
	m.onCard("user-data", "#cloud-config\npassword: x\n")
	m.onCard("wpa_supplicant.conf", "psk=secret")
	m.boot()
	if names := m.names(); names != "autoboot.txt bootcode.bin" || !m.told("user-data", preseed.Removed) || !m.told("wpa_supplicant.conf", preseed.Removed) {
		t.Errorf("card: %s", names)
	}
}

// Field case 79: a card in another board is another machine.
func TestClonedCard(t *testing.T) {
	m := withCard(t)
	m.boot()
	m.write("/data/farhand/state/credentials.json", "tokens")
	st := m.stored()
	st.Paired = true
	if err := saveStore(m.path(dataDir, storeName), st); err != nil {
		t.Fatal(err)
	}
	owned := make(map[string]int)
	m.Chown = func(path string, uid, _ int) error {
		owned[path] = uid
		return nil
	}
	for board, serial := range []string{"1000000011111111", "1000000022222222", "1000000033333333", "1000000044444444", "1000000055555555"} {
		m.write("/proc/device-tree/serial-number", serial+"\x00")
		m.write("/data/system/machine-id", serial)
		if out := m.boot(); out.Restart == "" {
			t.Fatal("no restart for a new machine-id")
		}
		if got := m.file("/data/system/machine-id"); got != "(none)" {
			t.Errorf("machine-id %s", got)
		}
		if out := m.boot(); out.Restart != "" {
			t.Fatal("restarts for ever")
		}
		st := m.stored()
		if !st.Cloned || st.Paired || st.Serial != serial {
			t.Errorf("%+v", st)
		}
		for _, gone := range []string{"/data/farhand/state/credentials.json", "/data/farhand/state/claim-key"} {
			if got := m.file(gone); got != "(none)" {
				t.Errorf("%s: %s", gone, got)
			}
		}
		if board == 0 && m.file("/data/farhand/state.old-1/credentials.json") != "tokens" {
			t.Error("the old state isn't kept")
		}
		if uid, told := owned[m.path("/data/farhand/state.old-1")]; !told || uid != 0 {
			t.Error("the daemon can still read another board's state")
		}
		if f := m.facts(st, bootReport{}); !f.Cloned {
			t.Error("not told")
		}
		if m.hostname != "bench" || m.file("/var/lib/iwd/net.psk") == "(none)" {
			t.Error("the settings are gone")
		}
	}
	if m.file("/data/system/machine-id.old-3") != "1000000033333333" || m.file("/data/system/machine-id.old-4") != "(none)" {
		t.Error("what is set aside isn't bounded")
	}
}

func TestPowerCutsOfClone(t *testing.T) {
	for n := 0; ; n++ {
		m := withCard(t)
		m.boot()
		m.write("/data/farhand/state/credentials.json", "tokens")
		m.write("/proc/device-tree/serial-number", "1000000011111111\x00")
		where := m.cutAt(n)
		for range 3 {
			m.boot()
		}
		for path, want := range map[string]string{
			"/data/farhand/state/credentials.json":        "(none)",
			"/data/farhand/state.old-1/credentials.json":  "tokens",
			"/data/system/machine-id":                     "(none)",
			"/data/system/ssh.old-1/ssh_host_ed25519_key": "private",
			"/data/system/ssh/ssh_host_ed25519_key":       "private",
		} {
			if got := m.file(path); got != want {
				t.Errorf("cut at %q: %s: %s", where, path, got)
			}
		}
		if st := m.stored(); !st.Cloned || st.Serial != "1000000011111111" {
			t.Errorf("cut at %q: %+v", where, st)
		}
		if where == "" {
			return
		}
	}
}

// A board that says nothing of a serial number, now or before, is no clone.
func TestNoSerial(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(m.path("/proc/device-tree/serial-number")); err != nil {
		t.Fatal(err)
	}
	if out := m.boot(); out.Restart != "" || !strings.HasPrefix(m.hostname, "farhand-") || len(m.hostname) != len("farhand-123456") {
		t.Errorf("%q, %+v", m.hostname, out)
	}
	m.write("/proc/device-tree/serial-number", "1234\x00")
	if out := m.boot(); out.Restart != "" || m.stored().Serial != "1234" {
		t.Errorf("%+v", out)
	}
}

// Field case 72: without a data partition everything runs from memory, the card
// keeps what it says, and it is told.
func TestNoDataPartition(t *testing.T) {
	m := withCard(t)
	m.write(dataError, "no partition 7\n")
	m.boot()
	if names := m.names(); names != "autoboot.txt bootcode.bin farhand.toml rpi-preseed.toml" {
		t.Errorf("card: %s", names)
	}
	if m.hostname != "bench" || !strings.Contains(m.file("/run/farhand/config.toml"), `state_dir = "/data/farhand/state"`) {
		t.Errorf("host name %q", m.hostname)
	}
	r, err := m.loadReport()
	if err != nil || !strings.Contains(r.Degraded, "no partition 7") {
		t.Errorf("%+v, %v", r, err)
	}
	if f := m.facts(store{}, r); f.Degraded == "" {
		t.Error("not told")
	}
	m.write("/proc/device-tree/serial-number", "other\x00") // nothing to set aside
	if out := m.boot(); out.Restart != "" {
		t.Errorf("restart: %s", out.Restart)
	}
}

// Field case 72: a data partition that has become read-only: the daemon's state
// is copied to memory.
func TestReadOnlyData(t *testing.T) {
	m := withCard(t)
	m.boot()
	m.write("/data/farhand/state/credentials.json", "tokens")
	data := m.path("/data")
	testenv.Need(t, "mount", os.Geteuid() == 0 && exec.Command("mount", "--bind", data, data).Run() == nil, "it mounts, which takes root")
	t.Cleanup(func() {
		if err := exec.Command("umount", data).Run(); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	if out, err := exec.Command("mount", "-o", "remount,bind,ro", data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := m.reboot()
	if err == nil || out.Restart != "" {
		t.Errorf("%+v, %v", out, err)
	}
	if got := m.file("/run/farhand/state/credentials.json"); got != "tokens" {
		t.Errorf("the state in memory: %s", got)
	}
	config := m.file("/run/farhand/config.toml")
	if m.hostname != "bench" || !strings.Contains(config, `state_dir = "/run/farhand/state"`) || !strings.Contains(config, "https://relay.example") {
		t.Errorf("host name %q\n%s", m.hostname, config)
	}
	r, err := m.loadReport()
	if err != nil || !strings.Contains(r.Degraded, "read-only") || r.Store != m.path(runDir, storeName) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDamagedStore(t *testing.T) {
	m := withCard(t)
	m.boot()
	m.write("/data/farhand/provision.json", "{")
	if _, err := m.reboot(); err == nil {
		t.Error("nothing is said of it")
	}
	if m.file("/data/farhand/provision.json.old-1") != "{" || m.stored().Version != storeVersion {
		t.Error("it isn't set aside")
	}
	m.boot()
}

func TestBuses(t *testing.T) {
	m := newMachine(t)
	m.onCard(preseed.FarhandFile, "[buses]\nw1 = true\nuart5 = true\nspi0 = false\n")
	if err := os.Remove(m.slot + "/overlays/uart5-bcm2711.dtbo"); err != nil {
		t.Fatal(err)
	}
	if out := m.boot(); out.Restart == "" {
		t.Fatal("no restart")
	}
	want := string(hardware.Include(map[string]bool{"w1": true, "spi0": false}))
	if got := text(t, m.slot+"/"+hardware.IncludeFile); got != want {
		t.Errorf("include file:\n%s", got)
	}
	if !m.told("farhand.toml buses.uart5", preseed.Refused) {
		t.Error("not told")
	}
	if out := m.boot(); out.Restart != "" {
		t.Errorf("restarts again: %s", out.Restart)
	}
	// A partition that forgets what was written isn't tried for ever.
	for n := range maxBusTries + 2 {
		m.onSlot(hardware.IncludeFile, "# something else\n")
		out := m.boot()
		if gaveUp := n >= maxBusTries; gaveUp != (out.Restart == "") || gaveUp && !m.told("farhand.toml buses", preseed.Refused) {
			t.Errorf("%d: restart: %q", n, out.Restart)
		}
	}
	// The other slot has a file of its own; a trial of it isn't ended.
	m.write(slotFile, "slot=b\nboot=3\nsystem=6\nsource=bootloader\n")
	m.write("/proc/device-tree/chosen/bootloader/tryboot", "\x00\x00\x00\x01")
	if out := m.boot(); out.Restart != "" || text(t, m.slot+"/"+hardware.IncludeFile) != want || !m.told("farhand.toml buses", preseed.Changed) {
		t.Errorf("restart: %q", out.Restart)
	}
}

func TestBusesOfAnotherBoard(t *testing.T) {
	m := newMachine(t)
	m.write("/proc/device-tree/compatible", "raspberrypi,5-model-b\x00brcm,bcm2712\x00")
	m.onCard(preseed.FarhandFile, "[buses]\nspi1 = true\n")
	m.onCard(preseed.PreseedFile, "[interfaces]\nonewire = true\n")
	m.boot()
	if !m.told("farhand.toml buses.spi1", preseed.Refused) || !strings.Contains(text(t, m.slot+"/"+hardware.IncludeFile), "w1-bcm2712") {
		t.Error("not told, or not written")
	}
	m = newMachine(t)
	m.write("/proc/device-tree/compatible", "linux,dummy-virt\x00")
	m.onCard(preseed.FarhandFile, "[buses]\nspi1 = true\n")
	if out := m.boot(); out.Restart != "" || !m.told("farhand.toml buses", preseed.Ignored) {
		t.Errorf("restart: %q", out.Restart)
	}
}

// A root that can't be there must not keep the daemon from starting, and none is
// made where a link leads out of the default root.
func TestRoots(t *testing.T) {
	m := newMachine(t)
	m.write("/data/work/", "")
	m.write("/data/elsewhere/", "")
	m.write("/data/work/a/", "")
	for _, link := range []string{"/data/work/link", "/data/work/a/link"} {
		if err := os.Symlink(m.path("/data/elsewhere"), m.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	m.onCard(preseed.FarhandFile, `roots = ["/data/work/x", "/data/work/link/y", "/data/work/link", "/data/work/a/link", "/mnt/none", "/data/elsewhere"]`)
	m.boot()
	if config := m.file("/run/farhand/config.toml"); !strings.Contains(config, `roots = ["/data/work/x", "/data/elsewhere"]`) {
		t.Error(config)
	}
	if _, err := os.Stat(m.path("/data/elsewhere/y")); err == nil {
		t.Error("made where the link leads")
	}
	if !m.told("farhand.toml roots", preseed.Refused) {
		t.Error("not told")
	}
}

// The image's relay counts where the card names none.
func TestDefaultRelay(t *testing.T) {
	m := newMachine(t)
	m.write(defaultFile, "relay = \"https://default.example\"\nca_sha256 = \""+strings.Repeat("ab", 32)+"\"\n")
	m.boot()
	if config := m.file("/run/farhand/config.toml"); !strings.Contains(config, "https://default.example") || !strings.Contains(config, "pin_sha256") {
		t.Error(config)
	}
	m = withCard(t)
	m.write(defaultFile, "relay = \"https://default.example\"\nca_sha256 = \""+strings.Repeat("ab", 32)+"\"\n")
	m.boot()
	if config := m.file("/run/farhand/config.toml"); !strings.Contains(config, "https://relay.example") || strings.Contains(config, "pin_sha256") {
		t.Error(config)
	}
}

// broken is a partition that can't be mounted.
type broken struct{}

func (broken) View(context.Context, func(*os.Root) error) error   { return errors.New("no medium") }
func (broken) Commit(context.Context, func(*os.Root) error) error { return errors.New("no medium") }

// A card that can't be looked at this time is neither taken for an empty one nor
// repaired: the next start reads it, also of a machine that was paired meanwhile,
// for which the claim key isn't.
func TestCardIsReadLater(t *testing.T) {
	for _, paired := range []bool{false, true} {
		m := withCard(t)
		good := m.Card
		m.Card = broken{}
		if _, err := m.reboot(); err == nil || !strings.Contains(err.Error(), "no medium") {
			t.Errorf("what is said of it: %v", err)
		}
		if m.hostname != "farhand-cd12ef" || m.told(m.choice().file, preseed.Changed) {
			t.Errorf("it is called %q; autoboot.txt repaired: %v", m.hostname, m.told(m.choice().file, preseed.Changed))
		}
		if paired {
			st := m.stored()
			st.Paired = true
			if err := saveStore(m.path(dataDir, storeName), st); err != nil {
				t.Fatal(err)
			}
		}
		m.Card = good
		m.boot()
		if m.hostname != "bench" || !m.stored().Cleaned || m.stored().Unread {
			t.Errorf("it is called %q, the store is %+v", m.hostname, m.stored())
		}
		if has := m.file(dataDir+"/"+stateName+"/"+claimName) != "(none)"; has == paired {
			t.Errorf("paired %v: claim key handed over %v", paired, has)
		}
	}
}

// A card that can't be read is no reason not to start.
func TestNoCard(t *testing.T) {
	m := newMachine(t)
	m.Card, m.Slot = nil, nil
	if _, err := m.reboot(); err == nil {
		t.Error("nothing is said of it")
	}
	if m.hostname != "farhand-cd12ef" || m.file("/run/farhand/config.toml") == "(none)" {
		t.Errorf("host name %q", m.hostname)
	}
}
