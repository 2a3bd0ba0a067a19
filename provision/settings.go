package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"farhand/provision/preseed"
	"farhand/provision/render"
	"farhand/provision/request"
	"farhand/wire"
)

// networks are what the machine is reached by without a cable.
type networks struct {
	Country string         `json:"country,omitempty"`
	Wifi    []preseed.Wifi `json:"wifi,omitzero"`
	Entered *network       `json:"entered,omitempty"` // on the rescue network's page
}

// networks are those of the store, as they are put back.
func (st *store) networks() networks {
	return networks{Country: st.Settings.Country, Wifi: st.Settings.Networks(), Entered: st.Network}
}

func (st *store) setNetworks(n networks) {
	st.Settings.Country, st.Settings.Wifi, st.Settings.MoreWifi, st.Network = n.Country, nil, nil, n.Entered
	if len(n.Wifi) > 0 {
		st.Settings.Wifi, st.Settings.MoreWifi = &n.Wifi[0], n.Wifi[1:]
	}
}

const (
	// answerFirst is how long changed networks aren't put to use, so that the
	// answer to who changed them still gets out.
	answerFirst = 2 * time.Second
	// networkPatience is how long the relay may take to be reached with them.
	networkPatience = 2 * time.Minute
)

// attempt is one change of networks, from its being stored to its end.
type attempt struct {
	end  context.CancelFunc
	used time.Duration // uptime when the networks were put to use; 0: not yet
}

// Settings implements request.Handler.
func (srv *Server) Settings(context.Context) (wire.Settings, error) {
	srv.mu.Lock()
	st := srv.store
	srv.mu.Unlock()
	s := st.effective()
	out := wire.Settings{
		Hostname: render.Hostname(srv.sys.input(st)), Name: s.Farhand.Name, Timezone: s.Timezone,
		Wifi: wire.WifiSettings{
			Country: s.Country, Networks: []wire.WifiNetwork{}, Rescue: s.Farhand.WifiRescue,
			Pending: st.Before != nil, LastChange: st.WifiChange,
		},
		SSH: wire.SSHSettings{Enabled: s.SSH.Enabled && s.User != nil, Keys: []wire.SSHKey{}},
	}
	for _, w := range s.Networks() {
		n := wire.WifiNetwork{SSID: preseed.SSIDText(w.SSID), Hidden: w.Hidden, Security: "wpa"}
		if w.PSK == "" && w.Passphrase == "" {
			n.Security = "open"
		}
		out.Wifi.Networks = append(out.Wifi.Networks, n)
	}
	if s.User != nil {
		out.SSH.User = s.User.Name
	}
	for _, line := range s.SSH.AuthorizedKeys[:min(len(s.SSH.AuthorizedKeys), wire.MaxSSHKeys)] {
		out.SSH.Keys = append(out.SSH.Keys, preseed.PublicKey(line))
	}
	return out, nil
}

// ChangeSettings implements request.Handler.
func (srv *Server) ChangeSettings(ctx context.Context, c wire.SettingsChange) (wire.Settings, error) {
	srv.changing.Lock()
	defer srv.changing.Unlock()
	srv.mu.Lock()
	before, kept, degraded := srv.store, srv.kept, srv.report.Degraded
	srv.mu.Unlock()
	if !kept || degraded != "" {
		return wire.Settings{}, &request.Error{Code: request.Unavailable, Message: "nothing can be kept on this card; see farhandd status"}
	}
	after, err := srv.sys.changed(before, c)
	if err != nil {
		return wire.Settings{}, &request.Error{Code: request.Refused, Message: err.Error()}
	}
	if err := srv.change(func(st *store) bool {
		st.Settings, st.Network, st.Before, st.WifiChange = after.Settings, after.Network, after.Before, after.WifiChange
		return true
	}); err != nil {
		_ = srv.change(func(st *store) bool { // what isn't kept doesn't count
			st.Settings, st.Network, st.Before, st.WifiChange = before.Settings, before.Network, before.Before, before.WifiChange
			return false
		})
		return wire.Settings{}, fmt.Errorf("keep the settings: %w", err)
	}
	srv.sys.Log.Info("settings changed", "fields", c.Fields())
	if c.Networks() {
		srv.try(answerFirst)
	} else {
		err = srv.goBy(ctx)
	}
	if c.WifiRescue != nil {
		srv.front.SetAlways(*c.WifiRescue)
	}
	if err != nil {
		return wire.Settings{}, fmt.Errorf("kept, but not all of it is put to use before the next start: %w", err)
	}
	return srv.Settings(ctx)
}

// changed is the store after a change.
func (s *System) changed(st store, c wire.SettingsChange) (store, error) {
	if c.Networks() {
		if st.Before != nil {
			return store{}, errors.New("the last change of the networks still waits for the relay to be reached; try again in two minutes")
		}
		before := st.networks()
		st.Before, st.WifiChange = &before, ""
		st.Settings, st.Network = st.effective(), nil
	}
	if c.Timezone != nil && *c.Timezone != "" && !s.zone(*c.Timezone) {
		return store{}, errors.New("timezone: this image knows no such time zone; it is a name as Europe/Berlin")
	}
	var err error
	st.Settings, err = st.Settings.Changed(c)
	return st, err
}

// goBy has the running system go by the store, as its next start will.
func (srv *Server) goBy(ctx context.Context) error {
	srv.mu.Lock()
	st := srv.store
	srv.mu.Unlock()
	in := srv.sys.input(st)
	in.StateDir, in.ClaimKeyFile, in.Settings.Farhand.Roots = srv.report.StateDir, srv.report.ClaimKeyFile, srv.report.Roots
	r, err := srv.sys.render(in)
	if r.SSH {
		return errors.Join(err, srv.sys.startSSH(ctx, r.Hostname))
	}
	return errors.Join(err, srv.sys.run(ctx, "systemctl", "stop", "--no-block", "ssh.service"))
}

// try puts changed networks to use after a while, and puts back those of before
// unless KeepNetworks comes in time. The caller holds changing, or is the only one
// yet.
func (srv *Server) try(after time.Duration) {
	ctx, end := context.WithCancel(srv.ctx)
	a := &attempt{end: end}
	srv.mu.Lock()
	srv.attempt = a
	srv.mu.Unlock()
	srv.work.Go(func() {
		defer end()
		if !rest(ctx, after) {
			return
		}
		if after > 0 { // else the start has put them to use
			srv.logged("put the changed networks to use", srv.rejoin(ctx))
		}
		srv.mu.Lock()
		a.used = srv.sys.Clock.Uptime()
		srv.mu.Unlock()
		if rest(ctx, networkPatience) {
			srv.putBack(ctx)
		}
	})
}

// rest waits; false means that ctx ended before.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (srv *Server) logged(doing string, err error) {
	if err != nil {
		srv.sys.Log.Error("settings: "+doing, "error", err)
	}
}

// rejoin puts the store's networks to use, and all else that it says.
func (srv *Server) rejoin(ctx context.Context) error {
	return errors.Join(srv.goBy(ctx), srv.join(ctx))
}

// putBack takes a change of networks back, unless it has ended meanwhile.
func (srv *Server) putBack(ctx context.Context) {
	srv.changing.Lock()
	defer srv.changing.Unlock()
	if ctx.Err() != nil {
		return
	}
	srv.sys.Log.Warn("the relay wasn't reached with the changed networks; those of before are back")
	srv.logged("keep that the networks of before are back", srv.change(func(st *store) bool {
		if st.Before == nil {
			return false
		}
		st.setNetworks(*st.Before)
		st.Before, st.WifiChange = nil, wire.WifiRolledBack
		return true
	}))
	srv.logged("put the networks of before to use", srv.rejoin(ctx))
}

// KeepNetworks implements request.Handler.
func (srv *Server) KeepNetworks(_ context.Context, r request.Reached) error {
	srv.changing.Lock()
	defer srv.changing.Unlock()
	srv.mu.Lock()
	pending, a := srv.store.Before != nil, srv.attempt
	early := a == nil || a.used == 0 || r.Began < a.used
	srv.mu.Unlock()
	switch {
	case !pending:
		return nil
	case early:
		return &request.Error{Code: request.Unavailable, Message: "the changed networks weren't put to use yet when the relay was reached"}
	}
	err := srv.change(func(st *store) bool {
		st.Before, st.WifiChange = nil, wire.WifiKept
		return true
	})
	if err == nil {
		a.end()
	}
	return err
}
