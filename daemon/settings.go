package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"farhand/audit"
	"farhand/identity"
	"farhand/provision/request"
	"farhand/shim"
	"farhand/wire"
)

// settingsPatience bounds a change: the helper may have to make a host key.
const settingsPatience = 30 * time.Second

func (d *daemon) settingsMethods() shim.Table {
	return shim.Table{
		wire.TSettingsGet: {Handle: shim.Unary(d.getSettings)},
		wire.TSettingsSet: {Handle: shim.Unary(d.setSettings)},
	}
}

func (d *daemon) settingsHelper() request.Client {
	return request.Client{Path: d.config.ProvisionSocket, Timeout: settingsPatience}
}

// hasHelper says whether this machine is an appliance.
func (d *services) hasHelper() bool {
	info, err := os.Lstat(d.config.ProvisionSocket)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// ownersOnly refuses everybody but the owner's own login.
func ownersOnly(c wire.Caller) error {
	if c.OwnLogin && c.Owner != "" && c.Holder != "" {
		return nil
	}
	return wire.Errorf(wire.CapabilityNotGranted, "only the owner's own login may see and change the settings of a machine").
		With("capability", string(wire.SettingsCapability)).With("ceiling", "token")
}

func (d *daemon) getSettings(ctx context.Context, _ *shim.Call, r wire.SettingsGet) (any, error) {
	if err := ownersOnly(r.Caller); err != nil {
		return nil, err
	}
	s, err := d.settingsHelper().Settings(ctx)
	return s, settingsError(err)
}

// setSettings records what is to be changed, never to what, before the helper
// does it.
func (d *daemon) setSettings(ctx context.Context, c *shim.Call, r wire.SettingsSet) (any, error) {
	start := time.Now()
	entry := audit.Entry{RequestID: c.ID, Op: string(wire.TSettingsSet), Result: audit.Result{OK: true}}
	details := func(phase string) []audit.Field {
		fields := []audit.Field{audit.String("holder", wire.Clean(r.Holder, 128)), audit.Strings("fields", r.Change.Fields())}
		if phase != "" {
			fields = append(fields, audit.String("phase", phase))
		}
		return fields
	}
	entry.Details = details(audit.PhaseIntent)
	if err := d.audit.AppendSync(ctx, entry); err != nil {
		return nil, fmt.Errorf("the change can't be recorded: %w", err)
	}
	s, err := d.changeSettings(ctx, r)
	entry.Details, entry.Result = details(""), audit.ResultOf(err, time.Since(start))
	if e := d.audit.Append(entry); e != nil {
		return nil, unrecorded(e, err)
	}
	return s, err
}

func (d *daemon) changeSettings(ctx context.Context, r wire.SettingsSet) (any, error) {
	if err := ownersOnly(r.Caller); err != nil {
		return nil, err
	}
	s, err := d.settingsHelper().ChangeSettings(ctx, r.Change)
	if err != nil {
		return nil, settingsError(err)
	}
	d.name.Store(&s.Name)
	d.presenter.Changed()
	if s.Wifi.Pending {
		select {
		case d.rejoined <- struct{}{}:
		default:
		}
	}
	return s, nil
}

// settingsError is what the helper said in the protocol's codes.
func settingsError(err error) error {
	var e *request.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, request.ErrNoHelper):
		return wire.Errorf(wire.FeatureNotSupported, "this machine is no appliance: change its settings with its own system's tools")
	case errors.As(err, &e) && (e.Code == request.Refused || e.Code == request.Malformed):
		field, _, _ := strings.Cut(e.Message, ":")
		return wire.Errorf(wire.InvalidArgument, "%s", e.Message).With("field", field)
	case errors.As(err, &e) && e.Code == request.Unavailable:
		return wire.Errorf(wire.ReadOnlyDisk, "%s", e.Message)
	}
	return err
}

// displayName is the machine's name as its owner sees it.
func (d *services) displayName() string {
	name := d.config.DisplayName
	if set := d.name.Load(); set != nil { // not where somebody only logs in
		name = *set
	}
	return identity.DisplayName(name)
}

// reachEvery is how often the platform is tried with changed networks.
const reachEvery = 3 * time.Second

// keepNetworks tells the helper when the platform is reached with networks that
// were changed, so that it doesn't put back those of before. It ends with ctx.
func (d *daemon) keepNetworks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.rejoined:
		}
		if err := d.reachAnew(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("whether the changed networks are good can't be told to the helper", "error", err)
		}
	}
}

// reachAnew tries until the helper has heard that the platform was reached, or
// waits for it no more.
func (d *daemon) reachAnew(ctx context.Context) error {
	helper := d.settingsHelper()
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for {
		s, err := helper.Settings(ctx)
		if err != nil || !s.Wifi.Pending {
			return err
		}
		began := uptime()
		if d.platformReached(ctx) {
			err := helper.KeepNetworks(ctx, request.Reached{Began: began})
			if !errors.Is(err, request.Unavailable) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// platformReached makes a new connection to the platform, whatever it answers.
func (d *daemon) platformReached(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*reachEvery)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.config.Platform.String(), nil)
	if err != nil {
		return false
	}
	d.http.CloseIdleConnections() // they are of before
	resp, err := d.http.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}

// uptime is how long the machine has been up (CLOCK_BOOTTIME).
func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil { // every Linux has it
		return 0
	}
	return time.Duration(ts.Nano())
}
