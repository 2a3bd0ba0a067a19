package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"farhand/audit"
	"farhand/config"
	"farhand/device"
	"farhand/files"
	"farhand/forward"
	"farhand/grant"
	"farhand/identity"
	"farhand/internal/pinned"
	"farhand/internal/version"
	"farhand/llm"
	"farhand/observe"
	"farhand/shell"
	"farhand/shell/helper"
	"farhand/stream"
	"farhand/systemd"
	"farhand/terminal"
	"farhand/wire"
)

// services are the daemon's parts. They are made once and closed in the reverse
// order.
type services struct {
	config    config.Config
	log       *slog.Logger
	identity  identity.Identity
	audit     *audit.Log
	auditKey  []byte
	grants    *grant.Store
	forbidden *files.Forbidden
	private   *files.Private // nil: nothing is
	releases  *releases
	wasOpen   bool                      // something private was open to others until this start
	sealed    atomic.Pointer[time.Time] // when commands were last found to be kept from it
	running   running
	notRoots  []string // why a root of the configuration isn't offered, each with its path
	uploads   *files.Uploads
	shell     *shell.Service // nil: off
	helper    *helper.Client // nil: commands run as this process' user
	llm       *llm.Service   // nil: off
	registry  *device.Registry
	leases    *device.Leases     // nil: hardware is off
	dispatch  *device.Dispatcher // nil: hardware is off
	streams   *stream.Hub
	terminals *terminal.Service   // nil: shell is off
	restored  map[string]*os.File // what the service manager kept
	hotplug   hotplug
	pulls     pulls
	observe   *observe.Service // nil: off
	forward   *forward.Service // nil: off
	live      live
	ceiling   wire.Ceiling
	name      atomic.Pointer[string] // display_name, which the owner may change
	degraded  string                 // why the state is in memory; empty: it is on the disk
	stateDisk string                 // the state directory that a copy stands for, if so

	changing []func(hook func()) // what else than the kernel tells of changes
	closers  []io.Closer
}

// ConfigError is a configuration that reads well and can't be used here: the
// daemon exits with 78.
type ConfigError struct{ Reason error }

func (e *ConfigError) Error() string { return "configuration: " + e.Reason.Error() }
func (e *ConfigError) Unwrap() error { return e.Reason }

// AuditPath is the audit log in a state directory.
func AuditPath(stateDir string) string { return filepath.Join(stateDir, "audit.log") }

// AuditKey reads the key that the audit log and the root grants are signed with.
func AuditKey(stateDir string) ([]byte, error) {
	return audit.ReadKey(filepath.Join(stateDir, "audit.key"))
}

// open makes all parts. What it made is closed again if one fails.
func open(ctx context.Context, o Options) (_ *services, err error) {
	d := &services{config: o.Config, log: o.Log}
	d.name.Store(&o.Config.DisplayName)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := d.openStateDisk(&o); err != nil {
		return nil, err
	}
	d.config = o.Config
	lock, err := identity.LockStateDir(o.Config.StateDir)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, lock)
	if d.restored, err = systemd.Restored(func(name string) string { return getenv(o.Environ, name) }); err != nil {
		d.log.Warn("descriptors of the service manager", "error", err)
	}
	for _, step := range []func(context.Context, Options) error{
		d.openIdentity, d.openAudit, d.openPrivate, d.openRoots, d.openUploads, d.openGrants, d.openShell, d.openStreams, d.openTerminals, d.openHardware, d.openLLM, d.openObserve,
		d.openForward,
	} {
		if err := step(ctx, o); err != nil {
			return nil, errors.Join(err, d.recordFailedStart(err))
		}
		if o.progress != nil {
			o.progress()
		}
	}
	if err := d.commands(ctx); err != nil || d.wasOpen { // terminals of an earlier start, which may have had other rules
		d.endCommands("it was open to others before this start")
	}
	caps := []wire.Capability(d.offered())
	d.ceiling.Capabilities, d.ceiling.Roots = &caps, &d.config.Roots
	return d, nil
}

// allowed is hardware.allow as a ceiling on devices, and the patterns of the ids
// that there are at all; both nil if it isn't configured.
func allowed(c config.Config) (*[]wire.DeviceGrant, []string, error) {
	if c.HardwareAllow == nil {
		return nil, nil, nil
	}
	grants, patterns := []wire.DeviceGrant{}, []string{}
	for _, text := range c.HardwareAllow {
		g, err := wire.ParseDeviceGrant(text)
		if err != nil {
			return nil, nil, &ConfigError{fmt.Errorf("hardware.allow: %w", err)}
		}
		grants, patterns = append(grants, g), append(patterns, g.Pattern)
	}
	return &grants, patterns, nil
}

// recordFailedStart leaves a record of a start that came to nothing, once there
// is a log to leave it in.
func (d *services) recordFailedStart(cause error) error {
	if d.audit == nil {
		return nil
	}
	return d.audit.Append(audit.Entry{
		Op: audit.OpPreflightFailed, Details: []audit.Field{audit.String("reason", cause.Error())}, Result: audit.ResultOf(cause, 0),
	})
}

// Close closes all parts, the last made first.
func (d *services) Close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i].Close())
	}
	return errors.Join(errs...)
}

// bootPartitions are where a Raspberry Pi's boot partition may be mounted.
var bootPartitions = []string{"/boot/firmware", "/boot"}

// forbiddenPaths is what files can never reach, whatever the roots say.
func forbiddenPaths(c config.Config, more ...string) (*files.Forbidden, error) {
	paths := append([]string{c.StateDir, "/proc", "/sys", "/dev", "/run"}, bootPartitions...)
	if c.File != "" {
		paths = append(paths, c.File)
	}
	for _, file := range []string{c.CAFile, c.ClaimKeyFile} {
		if file != "" {
			paths = append(paths, file)
		}
	}
	for _, p := range c.Printers {
		if p.KeyFile != "" {
			paths = append(paths, p.KeyFile)
		}
	}
	return files.NewForbidden(append(paths, more...)...)
}

func (d *services) openIdentity(ctx context.Context, o Options) error {
	id, err := identity.MachineID(ctx, identity.Options{StateDir: o.Config.StateDir, Override: o.Config.MachineID})
	if err != nil {
		return fmt.Errorf("machine id: %w", err)
	}
	if id.Changed {
		d.log.Warn("this card is in another board than before: it has a new identity and must be paired anew", "machine_id", id.MachineID)
	}
	d.identity = id
	return nil
}

func (d *services) openAudit(_ context.Context, o Options) error {
	key, err := audit.LoadKey(filepath.Join(o.Config.StateDir, "audit.key"))
	if err != nil {
		return &ConfigError{err}
	}
	d.auditKey = key
	d.audit, err = audit.Open(audit.Options{
		Path: AuditPath(o.Config.StateDir), Key: key, MachineID: d.identity.MachineID, ShimVersion: version.String(), Log: o.Log,
	})
	if err != nil {
		return &ConfigError{err}
	}
	d.closers = append(d.closers, d.audit)
	start := audit.Entry{
		Op: audit.OpShimStart, Result: audit.Result{OK: true},
		Details: []audit.Field{audit.String("shim_version", version.String()), audit.Bool("machine_changed", d.identity.Changed)},
	}
	if err := d.audit.Append(start); err != nil {
		return fmt.Errorf("the start can't be recorded: %w", err)
	}
	return nil
}

func (d *services) openGrants(_ context.Context, o Options) error {
	store, err := grant.Open(grant.Options{
		Dir: o.Config.StateDir, Key: d.auditKey, MachineID: d.identity.MachineID, Forbidden: d.checkRoot,
	})
	if err != nil {
		return fmt.Errorf("root grants: %w", err)
	}
	d.grants = store
	d.closers = append(d.closers, store)
	return nil
}

func (d *services) openStreams(_ context.Context, o Options) error {
	// Receivers tell that they are there as often as DefaultIdle needs it, however
	// soon an idle lease is to end.
	idle := max(o.Config.LeaseIdle, stream.DefaultIdle)
	d.streams = stream.NewHub(stream.HubOptions{Memory: o.Config.StreamMemory, Idle: idle, OnEnd: d.streamEnded, Log: o.Log})
	d.closers = append(d.closers, &d.hotplug, &d.pulls, d.streams)
	return nil
}

func (d *services) openHardware(ctx context.Context, o Options) error {
	if !o.Config.HardwareEnabled {
		return nil
	}
	devices, patterns, err := allowed(o.Config)
	if err != nil {
		return err
	}
	d.ceiling.Devices = devices
	families, err := d.openFamilies(ctx, o)
	if err != nil {
		return err
	}
	d.registry = device.NewRegistry(device.Options{
		Families: families, Allow: patterns, Deny: o.Config.HardwareDeny, Log: o.Log,
	})
	for _, onChange := range d.changing {
		onChange(d.registry.Changed)
	}
	d.leases = device.NewLeases(device.LeaseOptions{
		Idle: o.Config.LeaseIdle, OnHold: d.live.held, OnEnd: d.live.ended, LastFrame: d.live.lastFrame, Log: o.Log,
	})
	d.closers = append(d.closers, d.leases) // before the streams, which end with their leases, for the leases' reason
	d.dispatch = device.NewDispatcher(d.registry, d.leases, d.streams)
	return d.registry.Refresh(ctx)
}

func (d *services) openLLM(_ context.Context, o Options) error {
	c := o.Config.LLM
	if !c.Enabled {
		return nil
	}
	queue := c.Queue
	if queue == 0 {
		queue = -1 // llm's way to say none
	}
	var vet func(net.Conn) error
	if d.private != nil {
		vet = d.vetModel
	}
	var err error
	if d.llm, err = llm.New(llm.Config{
		Kind: c.Kind, URL: c.URL.String(), LoadTimeout: c.LoadTimeout, TokenTimeout: c.TokenTimeout, Context: c.ContextTokens,
		KeepAlive: c.KeepAlive, Queue: queue, Vet: vet, Speeds: filepath.Join(o.Config.StateDir, "llm-speeds.json"), Log: o.Log,
	}); err != nil {
		return &ConfigError{fmt.Errorf("llm.url: %w", err)}
	}
	d.closers = append(d.closers, d.llm)
	return nil
}

// capabilities is what this machine offers now: without commands while they can't
// be kept from what is private.
func (d *services) capabilities(ctx context.Context) wire.Capabilities {
	caps := d.offered()
	if d.commands(ctx) != nil {
		caps = without(without(caps, wire.Shell), wire.Terminal)
	}
	return caps
}

// offered is everything that this machine may offer, as the configuration has it.
// The local model is offered while it has models.
func (d *services) offered() wire.Capabilities {
	caps := wire.Capabilities{wire.Files, wire.Transfer, wire.Grants, wire.AuditAnchor, wire.MachineFactsCapability, wire.Machines, wire.Streams}
	if d.hasHelper() {
		caps = append(caps, wire.SettingsCapability)
	}
	caps = append(caps, wire.Cancel)
	if d.shell != nil {
		caps = append(caps, wire.Shell, wire.Terminal)
	}
	if d.llm != nil {
		caps = append(caps, wire.LocalLLM, wire.LocalLLMExtended, wire.LLMManage)
	}
	if d.private != nil {
		caps = append(caps, wire.Privacy)
	}
	if d.observe != nil {
		caps = append(caps, wire.Observe)
	}
	if d.forward != nil {
		caps = append(caps, wire.Forward)
	}
	if d.dispatch != nil {
		caps = append(caps, wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO, wire.HardwareI2C, wire.HardwareSPI, wire.HardwarePrinter)
	}
	return caps
}

// modelPatience bounds the look at the local model before a HELLO.
const modelPatience = 500 * time.Millisecond

// hello is what the machine says about itself.
func (d *services) hello(ctx context.Context, _ wire.Channel, _ string) (wire.Hello, error) {
	arch, err := identity.Arch()
	if err != nil {
		return wire.Hello{}, err
	}
	h := wire.Hello{
		ShimVersion:  version.String(),
		MachineID:    d.identity.MachineID,
		DisplayName:  d.displayName(),
		Platform:     identity.Platform(),
		Arch:         arch,
		BootID:       d.identity.BootID,
		Capabilities: d.capabilities(ctx),
	}
	if d.registry != nil {
		h.HardwareDevices = d.registry.List()
	}
	if d.llm != nil {
		probe, cancel := context.WithTimeout(ctx, modelPatience)
		defer cancel()
		h.LocalLLMModels, _ = d.llm.Models(probe) // failing or none: not offered
		if len(h.LocalLLMModels) == 0 {
			h.Capabilities = without(h.Capabilities, wire.LocalLLM)
		}
	}
	return h, nil
}

func without(caps wire.Capabilities, c wire.Capability) wire.Capabilities {
	var out wire.Capabilities
	for _, x := range caps {
		if x != c {
			out = append(out, x)
		}
	}
	return out
}

// tlsConfig trusts what the configuration says: the system's authorities, those
// of a file, or exactly one pinned certificate as root.
func tlsConfig(c config.Config) (*tls.Config, error) {
	var roots *x509.CertPool
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, &ConfigError{fmt.Errorf("tls.ca_file: %w", err)}
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, &ConfigError{fmt.Errorf("tls.ca_file: %s holds no certificate in PEM", c.CAFile)}
		}
	}
	t, err := pinned.Config(c.Platform.Hostname(), c.PinSHA256, roots)
	if err != nil {
		return nil, &ConfigError{fmt.Errorf("tls.pin_sha256: %w", err)}
	}
	return t, nil
}

// httpClient is for everything but the sockets.
func httpClient(c config.Config) (*http.Client, error) {
	t, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: t, Proxy: http.ProxyFromEnvironment, MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 15 * time.Second}
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, nil
}

// credentialsDir is where systemd put the unit's credentials.
func credentialsDir(environ []string) string { return getenv(environ, "CREDENTIALS_DIRECTORY") }

func getenv(environ []string, name string) string {
	for _, pair := range environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v
		}
	}
	return ""
}
