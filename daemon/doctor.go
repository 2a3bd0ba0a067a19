package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"farhand/auth"
	"farhand/bus"
	"farhand/config"
	"farhand/daemon/board"
	"farhand/daemon/clock"
	"farhand/device"
	"farhand/files"
	"farhand/gpio"
	"farhand/internal/version"
	"farhand/octoprint"
	"farhand/provision/request"
	"farhand/serialio"
	"farhand/usb"
	"farhand/wire"
)

// Level is how bad a finding is.
type Level string

// The levels. Only Fail stands in the daemon's way.
const (
	OK   Level = "ok"
	Info Level = "info"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is one thing that the doctor looked at.
type Finding struct {
	Level Level  `json:"level"`
	About string `json:"about"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// DoctorOptions say what to look at.
type DoctorOptions struct {
	Config  config.Config
	Environ []string
	Local   Local
	Command string // how farhandd is called with this configuration; empty: "farhandd"
}

// networkPatience bounds the doctor's one request.
const networkPatience = 10 * time.Second

// Doctor checks everything that the daemon needs and changes nothing.
func Doctor(ctx context.Context, o DoctorOptions) []Finding {
	if o.Command == "" {
		o.Command = "farhandd"
	}
	running, err := o.Local.Status(ctx)
	findings := []Finding{
		{Level: Info, About: "version", Found: version.String()},
		checkConfig(o.Config),
		checkRunning(running, err, o.Command),
		checkState(o.Config.StateDir),
	}
	network, skew := checkNetwork(ctx, o.Config)
	findings = append(findings, skew, network, checkToken(o))
	if err == nil {
		findings = append(findings, checkMachine(running.Machine)...)
	} else {
		findings = append(findings, checkMachine(lookAtMachine())...)
	}
	findings = append(findings, checkRoots(o.Config)...)
	findings = append(findings, checkShell(o.Config, answered(running, err)), checkModels(ctx, o.Config, answered(running, err)))
	findings = append(findings, checkPrivacy(ctx, o.Config, answered(running, err))...)
	if err == nil { // what it has, simulated ones and leases included
		return append(findings, judgeDevices(running.Devices, o.Config)...)
	}
	return append(findings, checkDevices(ctx, o.Config)...)
}

// answered is nil if no daemon did.
func answered(s Status, err error) *Status {
	if err != nil {
		return nil
	}
	return &s
}

func checkConfig(c config.Config) Finding {
	if c.File == "" {
		return Finding{Level: Info, About: "configuration", Found: "no file; defaults, environment and flags"}
	}
	return Finding{Level: OK, About: "configuration", Found: c.File}
}

func checkRunning(s Status, err error, command string) Finding {
	switch {
	case errors.Is(err, ErrNotRunning):
		return Finding{Level: Info, About: "daemon", Found: "not running", Do: "start it with: " + command + " run"}
	case errors.Is(err, os.ErrPermission):
		return Finding{Level: Warn, About: "daemon", Found: "its socket may not be opened by this user", Do: "run the doctor as the daemon's user or as root"}
	case err != nil:
		return Finding{Level: Warn, About: "daemon", Found: err.Error()}
	case s.State == StateHalted:
		return Finding{Level: Fail, About: "daemon", Found: "halted: " + s.Detail, Do: "let it connect again with: " + command + " resume"}
	case s.State == StateLoginNeeded:
		return Finding{Level: Fail, About: "daemon", Found: "login needed: " + s.Detail, Do: command + " login"}
	case s.State == StatePairing && s.Pairing != nil:
		return Finding{Level: Warn, About: "daemon", Found: "waits to be paired", Do: "farhand approve " + s.Pairing.UserCode}
	default:
		return Finding{Level: OK, About: "daemon", Found: fmt.Sprintf("%s, pid %d", s.State, s.PID)}
	}
}

func checkState(dir string) Finding {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return Finding{Level: Info, About: "state", Found: dir + " does not exist yet", Do: "the daemon makes it at its first start"}
	}
	if err != nil {
		return Finding{Level: Fail, About: "state", Found: err.Error(), Do: "give the daemon's user access to " + dir}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Finding{Level: Fail, About: "state", Found: fmt.Sprintf("%s has mode %04o, so others can read its keys", dir, info.Mode().Perm()), Do: "chmod 700 " + dir}
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return Finding{Level: Fail, About: "state", Found: fmt.Sprintf("%s can't be written: %v", dir, err), Do: "chown it to the daemon's user, or free or remount the disk"}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil {
		free := fs.Bavail * uint64(fs.Bsize)
		if free < 64<<20 { // one audit file
			return Finding{Level: Warn, About: "state", Found: fmt.Sprintf("only %d MiB left for %s", free>>20, dir), Do: "free some space: without it nothing can be recorded, and so nothing done"}
		}
	}
	return Finding{Level: OK, About: "state", Found: dir}
}

// maxSkew is how far the clock may be off before certificates and tokens
// become a matter of luck.
const maxSkew = 5 * time.Minute

// checkNetwork makes one request. Its Date header also tells how far our clock
// is off, even where the certificate is only refused for that reason.
func checkNetwork(ctx context.Context, c config.Config) (network, clock Finding) {
	clock = Finding{Level: Info, About: "clock", Found: time.Now().Format(time.RFC3339) + ", compared with nothing"}
	network = Finding{Level: OK, About: "network"}
	client, err := httpClient(c)
	if err != nil {
		return Finding{Level: Fail, About: "network", Found: err.Error(), Do: "check tls.ca_file and tls.pin_sha256"}, clock
	}
	ctx, cancel := context.WithTimeout(ctx, networkPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Platform.String(), nil)
	if err != nil {
		return Finding{Level: Fail, About: "network", Found: err.Error()}, clock
	}
	resp, err := client.Do(req)
	if err != nil {
		network = Finding{Level: Fail, About: "network", Found: err.Error(), Do: "check the address, the cable or Wi-Fi, and DNS"}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			network.Do = "check the clock, tls.ca_file and tls.pin_sha256; pin the relay's CA with the hash that farhand-relay init printed"
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			network.Do = "nothing listens there: start the relay, or correct platform_url"
		}
		return network, clock
	}
	resp.Body.Close()
	network.Found = fmt.Sprintf("%s answers with HTTP %d", c.Platform, resp.StatusCode)
	if resp.StatusCode >= 500 {
		network.Level, network.Do = Warn, "the platform is in trouble; the daemon keeps trying"
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		skew := time.Since(date).Round(time.Second)
		clock = Finding{Level: OK, About: "clock", Found: fmt.Sprintf("within %s of the platform's", max(skew.Abs(), time.Second))}
		if skew.Abs() > maxSkew {
			clock = Finding{Level: Fail, About: "clock", Found: fmt.Sprintf("%s off the platform's", skew), Do: "set the clock, for example: timedatectl set-ntp true"}
		}
	}
	return network, clock
}

// lookAtMachine is what can be known of the machine without the daemon.
func lookAtMachine() MachineStatus {
	var b board.Board
	m := MachineStatus{ClockState: clock.Clock{}.State()}
	if power, known := b.Power(); known {
		m.Power, m.WeakPower = power.String(), power.Weak()
	}
	m.setBoot(b.Boot())
	return m
}

// checkMachine judges what is told about the machine below.
func checkMachine(m MachineStatus) []Finding {
	var out []Finding
	add := func(level Level, about, found, do string) {
		out = append(out, Finding{Level: level, About: about, Found: found, Do: do})
	}
	switch s := m.ClockState; s {
	case clock.Synchronised, clock.RTC:
		add(OK, "time", string(s), "")
	case clock.Unsynchronised:
		add(Info, "time", "nobody says that the clock is kept right", "")
	default:
		add(Warn, "time", "the clock stands on: "+string(s), "let NTP through (UDP port 123), or name a server: timedatectl; until then certificates may seem not to be valid yet")
	}
	switch {
	case m.WeakPower:
		add(Warn, "power", m.Power, "use the board's own power supply and a short, thick cable: a weak one corrupts cards")
	case m.Power != "" && m.Power != "ok":
		add(Info, "power", m.Power, "")
	case m.Power != "":
		add(OK, "power", m.Power, "")
	}
	if m.NotUpdatable != "" {
		add(Warn, "updates", m.NotUpdatable, "")
	} else if m.Updatable {
		add(OK, "updates", "slot "+m.Slot+" runs, the other can be tried", "")
	}
	if w := m.Watchdog; w != nil {
		switch {
		case w.WantedS == 0 && w.EffectiveS == 0:
			add(Info, "watchdog", "the hardware has one ("+w.Identity+"), and it doesn't run", "RuntimeWatchdogSec=15 in /etc/systemd/system.conf.d has a machine that hangs started anew")
		case w.WantedS > 0 && (w.EffectiveS == 0 || w.EffectiveS > w.WantedS):
			add(Fail, "watchdog", fmt.Sprintf("runs with %d s where %d s are wanted (%s)", w.EffectiveS, w.WantedS, w.Identity), "set RuntimeWatchdogSec= to what the hardware can, at most 15 s on a Raspberry Pi")
		default:
			add(OK, "watchdog", fmt.Sprintf("%d s (%s)", w.EffectiveS, w.Identity), "")
		}
	}
	if m.Wifi == request.WifiNoCountry {
		add(Warn, "wifi", m.Wifi, "give the country: [wlan] country in rpi-preseed.toml")
	}
	if m.Degraded != "" {
		add(Fail, "disk", m.Degraded, "replace the card if it stays so after a restart")
	}
	return out
}

func checkToken(o DoctorOptions) Finding {
	base, err := auth.BaseURL(o.Config.Platform.String())
	if err != nil {
		return Finding{Level: Fail, About: "token", Found: err.Error()}
	}
	tokens, err := auth.NewStore(o.Config.StateDir, base, credentialsDir(o.Environ)).Load()
	switch {
	case errors.Is(err, auth.ErrLoginNeeded):
		return Finding{Level: Warn, About: "token", Found: "not paired", Do: o.Command + " run shows a code, or: " + o.Command + " login"}
	case err != nil:
		return Finding{Level: Fail, About: "token", Found: err.Error(), Do: "run the doctor as the daemon's user; if the file is broken, remove it and pair again"}
	case !tokens.Expires.IsZero() && time.Now().After(tokens.Expires):
		return Finding{Level: OK, About: "token", Found: "the access token has expired; it is renewed at the next connection"}
	default:
		return Finding{Level: OK, About: "token", Found: "paired"}
	}
}

func checkRoots(c config.Config) []Finding {
	if len(c.Roots) == 0 {
		return []Finding{{Level: Warn, About: "roots", Found: "none: no directory is offered", Do: "set roots"}}
	}
	forbidden, err := forbiddenPaths(c)
	if err != nil {
		return []Finding{{Level: Fail, About: "roots", Found: err.Error()}}
	}
	var out []Finding
	for _, root := range c.Roots {
		out = append(out, checkRoot(root, c, forbidden))
	}
	return out
}

func checkRoot(root string, c config.Config, forbidden *files.Forbidden) Finding {
	if _, err := os.Lstat(root); errors.Is(err, os.ErrNotExist) && c.DefaultRoot {
		return Finding{Level: Info, About: "roots", Found: root + " does not exist yet", Do: "the daemon makes it at its first start"}
	}
	if _, err := usableRoot(root, forbidden); err != nil {
		return Finding{Level: Fail, About: "roots", Found: err.Error()}
	}
	if err := unix.Access(root, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return Finding{Level: Fail, About: "roots", Found: fmt.Sprintf("%s: %v", root, err), Do: "give the daemon's user access, or take it out of roots"}
	}
	return Finding{Level: OK, About: "roots", Found: root}
}

func checkDevices(ctx context.Context, c config.Config) []Finding {
	if !c.HardwareEnabled {
		return []Finding{{Level: OK, About: "devices", Found: "off"}}
	}
	var families []device.Family
	for _, driver := range []device.Driver{serialio.Driver{}, usb.Driver{}, gpio.Driver{}, bus.I2C{}, bus.SPI{}, octoprint.Driver{}} {
		families = append(families, device.Family{Driver: driver, Service: onlyListed{}})
	}
	_, patterns, err := allowed(c)
	if err != nil {
		return []Finding{{Level: Fail, About: "devices", Found: err.Error()}}
	}
	registry := device.NewRegistry(device.Options{Families: families, Allow: patterns, Deny: c.HardwareDeny})
	if err := registry.Refresh(ctx); err != nil {
		return []Finding{{Level: Warn, About: "devices", Found: err.Error()}}
	}
	out := judgeDevices(registry.List(), c)
	if c.Sim {
		out[0].Found += ", and the simulated bench once the daemon runs"
	}
	for _, p := range registry.Problems() {
		out = append(out, Finding{Level: Warn, About: "devices", Found: fmt.Sprintf("%s: %v", p.Type, p.Err)})
	}
	return out
}

// onlyListed serves nothing: beside a running daemon, doctor touches no device.
type onlyListed struct{}

func (onlyListed) Ops() map[string]device.Effect { return nil }

func (onlyListed) Do(_ context.Context, r *device.Request) (any, error) {
	return nil, wire.Errorf(wire.FeatureNotSupported, "%s is only listed", r.Device.ID)
}

// judgeDevices counts the devices and says which can't be used for want of
// permission.
func judgeDevices(list []wire.HardwareDevice, c config.Config) []Finding {
	if !c.HardwareEnabled {
		return []Finding{{Level: OK, About: "devices", Found: "off"}}
	}
	available := 0
	var out []Finding
	for _, d := range list {
		if d.Available {
			available++
		} else if strings.Contains(d.Reason, "permission") {
			out = append(out, Finding{Level: Warn, About: "devices", Found: d.ID + ": " + d.Reason, Do: "add the daemon's user to the group of " + filepath.Base(d.Port+d.Chip)})
		}
	}
	return append([]Finding{{Level: OK, About: "devices", Found: fmt.Sprintf("%d found, %d available", len(list), available)}}, out...)
}
