package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"farhand/audit"
	"farhand/auth"
	"farhand/config"
	"farhand/daemon/board"
	"farhand/daemon/present"
	"farhand/files"
	"farhand/internal/pulse"
	"farhand/internal/slack"
	"farhand/internal/version"
	"farhand/link"
	"farhand/provision/request"
	"farhand/shim"
	"farhand/stream"
	"farhand/systemd"
	"farhand/wire"
)

// ErrLoginNeeded says that there are no tokens and the platform offers no
// device authorisation. In the foreground the daemon exits with 77.
var ErrLoginNeeded = auth.ErrLoginNeeded

// Options are what Run needs besides the configuration.
type Options struct {
	Config  config.Config
	Log     *slog.Logger
	Screen  io.Writer // where a pairing code is shown
	Environ []string  // as os.Environ

	// Hangups ask for the configuration to be read again; nil: nobody asks. Load
	// reads it, and Level is what the logger goes by.
	Hangups <-chan os.Signal
	Load    func() (config.Config, error)
	Level   *slog.LevelVar

	progress func()                     // a step of a start that may take long is done
	power    func() (board.Power, bool) // what the firmware says of the supply; false if nobody knows
}

const (
	// After 4429 the platform asked not to be called for a while.
	shutdownPause  = 15 * time.Minute
	shutdownJitter = 5 * time.Minute
	// A refused pairing is not asked for again at once.
	refusedPause = time.Minute
	// offeredPause is how long after a platform that offered no code it is looked
	// whether it does now: a gateway whose platform is away answers alike.
	offeredPause = 10 * time.Minute
	// stopTime bounds the last audit records.
	stopTime = 2 * time.Second
)

// daemon is a running daemon: its parts and the state it is in.
type daemon struct {
	*services
	opts     Options
	notify   systemd.Notifier
	provider *auth.Provider
	store    *auth.Store
	source   *auth.Source
	http     *http.Client
	shim     *shim.Shim
	started  time.Time
	wake     chan struct{} // resume or login happened
	loop     *pulse.Loop   // of connect
	ready    chan struct{} // closed once the service manager was told
	once     sync.Once     // closes it

	rejoined  chan struct{} // networks were changed, or may have been
	presenter *present.Presenter
	contact   contact
	time      *timekeeper
	board     board.Board
	facts     atomic.Pointer[wire.MachineFacts]
	counts    counts

	mu           sync.Mutex
	state        State
	detail       string
	since        time.Time
	pairing      *PairingStatus
	unapplied    []string // keys whose new values need a restart
	claimRefused string   // why the card's claim key let nobody in
	network      network
	diskBroken   bool                    // the state disk takes nothing
	endRun       context.CancelCauseFunc // nil: not connected
}

// Run runs the daemon until ctx ends (then it returns nil) or it can't go on:
// *config.Error and *ConfigError (exit status 78), ErrLoginNeeded (77), others (1).
func Run(ctx context.Context, o Options) error { return newDaemon(o).runUntil(ctx) }

// newDaemon opens nothing yet.
func newDaemon(o Options) *daemon {
	d := &daemon{
		opts:     o,
		notify:   systemd.Notifier{Active: getenv(o.Environ, "NOTIFY_SOCKET") != "", Log: o.Log},
		started:  time.Now(),
		wake:     make(chan struct{}, 1),
		rejoined: make(chan struct{}, 1),
		loop:     pulse.New("the loop that connects"),
		ready:    make(chan struct{}),
		state:    StateStarting,
		since:    time.Now(),
	}
	d.time = d.newTimekeeper()
	d.opts.power = d.power
	d.opts.progress = func() { d.notify.Extend(stepTime) }
	return d
}

// runUntil is Run.
func (d *daemon) runUntil(ctx context.Context) error {
	var err error
	if d.services, err = open(ctx, d.opts); err != nil {
		return err
	}
	// The connection outlives ctx by what there is still to say on it.
	connected, disconnect := context.WithCancelCause(context.WithoutCancel(ctx))
	said := make(chan struct{})
	stopSaying := context.AfterFunc(ctx, func() {
		defer close(said)
		d.farewell()
		disconnect(context.Cause(ctx))
	})
	err = d.run(connected)
	if !stopSaying() {
		<-said
	}
	disconnect(nil)
	d.setState(StateStopping, "")
	d.notify.Stopping()
	return errors.Join(err, d.stop(err))
}

// farewellTime bounds what is said before the connection ends: a receiver that
// gives no credit hears nothing of it.
const farewellTime = 300 * time.Millisecond

// farewell ends what sessions hold, so that they hear why.
func (d *daemon) farewell() {
	ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
	defer cancel()
	if d.leases != nil {
		over := stream.Cause(wire.InternalError, stream.ReasonStopping, "the daemon is stopping")
		if _, err := d.leases.EndWhere(ctx, over, allLeases); err != nil {
			d.log.Warn("leases not all given back", "error", err)
		}
	}
	if d.terminals != nil {
		d.terminals.Leave()
	}
	d.streams.EndWhere(stream.ReasonStopping, func(stream.Info) bool { return true })
	d.streams.Drain(ctx)
}

// stop records the end and closes everything.
func (d *daemon) stop(cause error) error {
	reason := "signal"
	if cause != nil {
		reason = "failure"
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := d.audit.AppendSync(ctx, audit.Entry{Op: audit.OpShimStop, Details: []audit.Field{audit.String("reason", reason)}, Result: audit.Result{OK: true}})
	return errors.Join(err, d.services.Close())
}

func (d *daemon) run(ctx context.Context) error {
	if err := d.openAuth(); err != nil {
		return err
	}
	defer d.source.Close()
	d.openPresenter(ctx)
	defer d.presenter.Close()
	var err error
	if d.shim, err = shim.New(d.shimConfig()); err != nil { // before anybody can ask for it
		return err
	}
	local, err := listenLocal(ctx, SocketPath(getenv(d.opts.Environ, "RUNTIME_DIRECTORY"), d.config.StateDir),
		localHandlers{status: d.fullStatus, metric: d.writeMetrics, resume: d.resume, login: d.login, answers: d.releases.list, decide: d.decide}, d.log)
	if err != nil {
		return err
	}
	defer local.Close()
	d.warn()
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	d.follow(ctx, &background)
	background.Go(func() { d.watchDisk(ctx, cancel) })
	err = d.connect(ctx)
	if broken, ok := errors.AsType[*diskError](context.Cause(ctx)); ok {
		return broken
	}
	return err
}

// follow starts what runs beside the connection.
func (d *daemon) follow(ctx context.Context, background *sync.WaitGroup) {
	if d.registry != nil {
		background.Go(func() {
			if err := d.registry.Follow(ctx); err != nil && ctx.Err() == nil {
				d.log.Error("device changes are no longer followed", "error", err)
			}
		})
	}
	background.Go(func() { d.keepSwept(ctx) })
	background.Go(func() { d.keepSealed(ctx) })
	background.Go(func() { slack.Return(ctx) })
	background.Go(func() { d.time.keep(ctx) })
	background.Go(func() { d.followNetworks(ctx) })
	if d.hasHelper() {
		d.rejoined <- struct{}{} // before this start, maybe
		background.Go(func() { d.keepNetworks(ctx) })
	}
	d.lookAround()
	background.Go(func() { d.keepLooking(ctx) })
	background.Go(func() { d.reloadWhenAsked(ctx) })
	background.Go(func() {
		if err := d.notify.Watchdog(ctx, d.parts()...); err != nil {
			d.log.Error("watchdog", "error", err)
		}
	})
}

// sweepEvery is how often roots are looked through for what nobody will finish.
const sweepEvery = 24 * time.Hour

// keepSwept sweeps now and once a day.
func (d *daemon) keepSwept(ctx context.Context) {
	for tick := time.NewTicker(sweepEvery); ; {
		d.sweep(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep removes what writes left behind that were killed half way, and what is
// left of transfers that nobody went on with.
func (d *daemon) sweep(ctx context.Context) {
	if err := d.uploads.Sweep(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("unfinished transfers not looked through", "error", err)
	}
	for _, path := range d.config.Roots {
		root, err := files.Open(path, d.forbidden, nil) // who sweeps tells nobody
		if err != nil {
			d.log.Warn("root not looked through", "root", path, "error", err)
			continue
		}
		n, err := root.Sweep(ctx)
		if n > 0 || err != nil && ctx.Err() == nil {
			d.log.Info("unfinished writes removed", "root", path, "count", n, "error", err)
		}
		if err := root.Close(); err != nil {
			d.log.Warn("root not closed", "root", path, "error", err)
		}
	}
}

func (d *daemon) openAuth() error {
	var err error
	if d.http, err = httpClient(d.config); err != nil {
		return err
	}
	d.http.Transport = watched{next: d.http.Transport, before: d.time.settle, saw: d.saw}
	base, err := auth.BaseURL(d.config.Platform.String())
	if err != nil {
		return &ConfigError{err}
	}
	d.provider = &auth.Provider{Base: base, ClientID: d.config.OAuthClientID, HTTP: d.http, Log: d.log, Trouble: func(err error) {
		d.setState(StatePairing, d.withRefusal(askingCode+"; trying again: "+reason(err)))
	}}
	d.store = auth.NewStore(d.config.StateDir, base, credentialsDir(d.opts.Environ)).ForMachine(d.identity.MachineID)
	if d.source, err = auth.NewSource(d.provider, d.store); err != nil {
		return err
	}
	d.source.OnRenewed(func() { d.note(audit.OpTokenRefreshed) })
	return nil
}

// saw is told how each attempt to reach the platform ended.
func (d *daemon) saw(err error) {
	d.time.saw(err)
	if d.contact.saw(err) {
		d.presenter.Changed()
	}
}

// note records what has happened already, and so can't be refused.
func (d *daemon) note(op string, details ...audit.Field) {
	if err := d.audit.Append(audit.Entry{Op: op, Details: details, Result: audit.Result{OK: true}}); err != nil {
		d.log.Error("audit record failed", "op", op, "error", err)
	}
}

func (d *daemon) shimConfig() shim.Config {
	tlsConf, _ := tlsConfig(d.config) // its errors were those of httpClient
	buffers := new(link.Buffers)
	return shim.Config{
		ControlURL: d.config.WebSocket(),
		Dial: func(ctx context.Context, url, token string) (*link.Conn, error) {
			d.time.settle(ctx)
			conn, err := link.Dial(ctx, url, link.DialOptions{
				Options: link.Options{Buffers: buffers, Log: d.log}, Token: token, TLS: tlsConf, Device: true,
				UserAgent: "farhandd/" + version.String(),
			})
			d.saw(err)
			return conn, err
		},
		Tokens:      d.source,
		LoginNeeded: func(err error) bool { return errors.Is(err, auth.ErrLoginNeeded) },
		Hello:       d.hello,
		Open:        d.openSession,
		Control:     d.controlMethods(),
		Bindings:    bindings{d.grants, d.services},
		Audit:       d.audit,
		Ceiling:     d.ceiling,
		Roots:       d.config.Roots,
		Forbidden:   d.checkRoot,
		Limits: shim.Limits{
			MaxConcurrent: d.config.Limits.MaxConcurrent, MaxFileSize: d.config.Limits.MaxFileSize, CommandTimeout: d.config.Limits.CommandTimeout,
		},
		Facts:    d.facts.Load,
		OnState:  d.connectionChanged,
		Answered: d.counts.answered,
		Log:      d.log,
	}
}

// connect goes through the states until ctx ends.
func (d *daemon) connect(ctx context.Context) error {
	defer d.loop.End()
	if d.source.HasLogin() {
		d.presenter.Paired() // the power may have failed before the code was gone from the card
	}
	for ctx.Err() == nil {
		if !d.source.HasLogin() {
			if err := d.pair(ctx); err != nil {
				return err
			}
			continue
		}
		d.setState(StateConnecting, "")
		if err := d.serve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// errNewLogin ends a connection so that the next is made with the new login.
var errNewLogin = errors.New("a new login arrived")

// serve keeps the connection until it ends or another login takes its place:
// what was opened for the old one goes with it.
func (d *daemon) serve(ctx context.Context) error {
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	d.mu.Lock()
	d.endRun = end
	d.mu.Unlock()
	var err error
	d.during(func() { err = d.shim.Run(run) })
	d.mu.Lock()
	d.endRun = nil
	d.mu.Unlock()
	if ctx.Err() == nil && context.Cause(run) == errNewLogin {
		d.endTerminals("", stream.ReasonSessionEnded)
		return nil
	}
	return d.after(ctx, err)
}

// after decides what an ended connection means.
func (d *daemon) after(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	halted, isHalt := errors.AsType[*shim.Halted](err)
	switch {
	case err == nil:
		return errors.New("the connection ended without a reason")
	case errors.Is(err, shim.ErrRevoked), errors.Is(err, shim.ErrLoginNeeded):
		d.log.Warn("the login is no longer good", "error", err)
		return d.dropLogin(ctx)
	case isHalt && halted.Code == wire.ClosePlatformShutdown:
		d.forgetPoke()
		return d.waitForPlatform(ctx, halted)
	case isHalt:
		d.forgetPoke()
		d.setState(StateHalted, halted.Error()+"; let it connect again with: farhandd resume")
		d.wait(ctx, nil)
		return nil
	default:
		return err
	}
}

// dropLogin gives up tokens and leases after the owner revoked them, so that
// pairing starts anew.
func (d *daemon) dropLogin(ctx context.Context) error {
	defer d.loop.Busy(diskOverdue)()
	if d.leases != nil {
		if _, err := d.leases.EndWhere(ctx, wire.Errorf(wire.CapabilityNotGranted, "access was revoked"), allLeases); err != nil {
			d.log.Warn("leases not all given back", "error", err)
		}
	}
	d.endTerminals("", stream.ReasonGrantRevoked)
	if err := d.source.Drop(); err != nil {
		return fmt.Errorf("drop the revoked login: %w", err)
	}
	return nil
}

// wait waits for resume, login, the timer or the end; false means the end.
func (d *daemon) wait(ctx context.Context, timer <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-d.wake:
			return true
		case <-timer:
			return true
		case reply := <-d.loop.Asked():
			close(reply)
		}
	}
}

// waitForPlatform comes back after a shutdown once the platform answers again.
func (d *daemon) waitForPlatform(ctx context.Context, h *shim.Halted) error {
	for {
		pause := shutdownPause + rand.N(2*shutdownJitter) - shutdownJitter
		d.setState(StateHalted, fmt.Sprintf("%s; looking for the platform again in %s, at once with: farhandd resume", h.Error(), pause.Round(time.Minute)))
		timer := time.NewTimer(pause)
		again := d.wait(ctx, timer.C)
		timer.Stop()
		if !again {
			return nil
		}
		answers := false
		d.during(func() { answers = d.platformAnswers(ctx) })
		if answers {
			return nil
		}
	}
}

func (d *daemon) platformAnswers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.config.Platform.String(), nil)
	if err != nil {
		return true // a URL that can't be asked for can't say no either
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode < 500
}

const askingCode = "asking the platform for a code"

// pair gets tokens: by device authorisation where it is offered, otherwise by
// waiting for farhandd login.
func (d *daemon) pair(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		tokens auth.Tokens
		key    string // the claim key that they are for
		err    error
	}
	done := make(chan result, 1)
	go func() {
		if t, key, redeemed := d.redeem(ctx); redeemed {
			done <- result{t, key, ctx.Err()}
			return
		}
		d.setState(StatePairing, d.withRefusal(askingCode))
		t, err := d.provider.Pair(ctx, d.store, d.deviceRequest(), d.showPending)
		done <- result{t, "", err}
	}()
	var r result
	for waiting := true; waiting; {
		select {
		case r = <-done:
			waiting = false
		case <-d.wake: // a login arrived over the local socket
			cancel()
			<-done
			d.setPairing(nil)
			if d.source.HasLogin() {
				d.presenter.Paired()
			}
			return nil
		case reply := <-d.loop.Asked():
			close(reply)
		}
	}
	d.setPairing(nil)
	switch {
	case r.err == nil:
		// A disk that takes nothing may take it later: the platform gives what
		// wasn't used once more.
		if r.err = d.adopt(ctx, r.tokens, r.key); r.err == nil {
			return nil
		}
	case ctx.Err() != nil:
		return nil
	case errors.Is(r.err, auth.ErrNotOffered):
		return d.loginNeeded(ctx)
	}
	// Denied, refused by the platform, or not to be stored: somebody has to act.
	d.log.Warn("pairing failed", "error", r.err)
	d.setState(StatePairing, r.err.Error()+"; asking again soon")
	timer := time.NewTimer(refusedPause)
	defer timer.Stop()
	d.wait(ctx, timer.C)
	return nil
}

// adopt records and stores a login, and spends the claim key that it came from.
func (d *daemon) adopt(ctx context.Context, t auth.Tokens, key string) error {
	defer d.loop.Busy(diskOverdue)()
	if err := d.audit.AppendSync(ctx, audit.Entry{Op: audit.OpPaired, Result: audit.Result{OK: true}}); err != nil {
		return fmt.Errorf("the pairing can't be recorded: %w", err)
	}
	if err := d.source.Adopt(t); err != nil {
		return fmt.Errorf("the login can't be stored: %w", err)
	}
	if key != "" {
		d.spend(key)
	}
	d.setClaimRefused("")
	d.presenter.Paired()
	return nil
}

func (d *daemon) loginNeeded(ctx context.Context) error {
	const what = "the platform offers no device authorisation; log in with: farhandd login"
	d.setState(StateLoginNeeded, what)
	if !d.notify.Active {
		return fmt.Errorf("%w: %s", ErrLoginNeeded, what)
	}
	for {
		timer := time.NewTimer(offeredPause)
		again := d.wait(ctx, timer.C)
		timer.Stop()
		if !again || d.source.HasLogin() {
			return nil
		}
		var err error
		d.during(func() { _, err = d.provider.Metadata(ctx) })
		if !errors.Is(err, auth.ErrNotOffered) {
			return nil
		}
	}
}

func (d *daemon) deviceRequest() auth.DeviceRequest {
	var caps []string
	for _, c := range d.offered() {
		if c.Approvable() {
			caps = append(caps, string(c))
		}
	}
	return auth.DeviceRequest{
		MachineID: d.identity.MachineID, DisplayName: d.displayName(),
		Board: d.identity.Board, SerialSuffix: suffix(d.identity.Serial), Capabilities: caps,
	}
}

// suffix is the end of a serial number, for comparing with the label.
func suffix(serial string) string {
	const digits = 6
	if len(serial) <= digits {
		return serial
	}
	return serial[len(serial)-digits:]
}

func (d *daemon) showPending(p auth.Pending) {
	shown := PairingStatus{UserCode: p.UserCode, VerificationURI: p.VerificationURI, VerificationURIComplete: p.VerificationURIComplete, ExpiresAt: p.Expires}
	d.setPairing(&shown)
	d.note(audit.OpPairingStarted)
	d.setState(StatePairing, d.withRefusal("waits to be approved: farhand approve "+p.UserCode))
	d.presenter.ShowPairing(request.Pairing{
		VerificationURI: p.VerificationURI, VerificationURIComplete: p.VerificationURIComplete, UserCode: p.UserCode, ExpiresAt: p.Expires,
		Relay: d.config.Platform.String(), Name: d.displayName(), Note: d.withRefusal(""),
	})
	if err := showCode(d.opts.Screen, shown, time.Now()); err != nil {
		d.log.Warn("the pairing code could not be shown", "error", err)
	}
}

// resume and login are asked for over the local socket.

func (d *daemon) resume() error {
	d.shim.Wake()
	d.poke()
	return nil
}

func (d *daemon) login(b []byte) error {
	tokens, err := auth.ParseTokens(b)
	if err != nil {
		return err
	}
	if err := d.source.Adopt(tokens); err != nil {
		return err
	}
	d.note(audit.OpPaired)
	d.mu.Lock()
	if d.endRun != nil {
		d.endRun(errNewLogin)
	}
	d.mu.Unlock()
	d.poke()
	return nil
}

// forgetPoke drops a wake-up that came while there was nothing to wake.
func (d *daemon) forgetPoke() {
	select {
	case <-d.wake:
	default:
	}
}

func (d *daemon) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *daemon) warn() {
	if d.shell != nil && d.helper == nil {
		d.log.Warn("shell is " + shellWarning())
	}
}

// connectionChanged is told by the shim.
func (d *daemon) connectionChanged(s shim.Status) {
	d.graceLeases(s.Sessions)
	if s.Phase == shim.Online {
		if d.setState(StateOnline, "") {
			d.counts.connected.Add(1)
			d.tell("Online: " + d.config.Platform.String())
		}
		return
	}
	d.setState(StateConnecting, s.LastError)
}

// leaseGrace is how long a session keeps its devices without its socket.
const leaseGrace = 10 * time.Second

// graceLeases gives a session whose socket is lost a while to come back before
// its devices are free again.
func (d *daemon) graceLeases(sessions []shim.SessionStatus) {
	if d.leases == nil {
		return
	}
	for _, s := range sessions {
		if s.Live {
			d.leases.Keep(s.ID)
		} else {
			d.leases.ReleaseAfter(s.ID, leaseGrace)
		}
	}
}

// tell writes a line for whoever watches the daemon in the foreground.
func (d *daemon) tell(line string) {
	if _, err := fmt.Fprintln(d.opts.Screen, line); err != nil {
		d.log.Debug("nobody reads the screen", "error", err)
	}
}

// setState says whether the state is another than before.
func (d *daemon) setState(s State, detail string) bool {
	d.mu.Lock()
	other := d.state != s
	changed := other || d.detail != detail
	if other {
		d.since = time.Now()
	}
	d.state, d.detail = s, detail
	d.mu.Unlock()
	if changed {
		d.log.Info("state", "state", string(s), "detail", detail)
		d.tellManager(s, detail)
		if d.presenter != nil { // not before the start is over
			d.presenter.Changed()
		}
	}
	return other
}

func (d *daemon) setPairing(p *PairingStatus) {
	d.mu.Lock()
	d.pairing = p
	d.mu.Unlock()
	if p == nil {
		d.presenter.EndPairing()
	}
}

func (d *daemon) setClaimRefused(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claimRefused = why
}

// setDiskBroken says whether that is news.
func (d *daemon) setDiskBroken(broken bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	news := d.diskBroken != broken
	d.diskBroken = broken
	return news
}

// withRefusal adds why the card's claim key let nobody in, if it did not.
func (d *daemon) withRefusal(detail string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claimRefused == "" {
		return detail
	}
	if detail == "" {
		return d.claimRefused
	}
	return d.claimRefused + "; " + detail
}

func (d *daemon) status() Status {
	head := d.audit.Head()
	s := Status{
		Version: version.String(), PID: os.Getpid(), Uptime: time.Since(d.started).Seconds(),
		Platform: d.config.Platform.String(), MachineID: d.identity.MachineID, DisplayName: d.displayName(),
		Board: d.identity.Board, StateDir: d.config.StateDir, Roots: d.config.Roots, Capabilities: d.offered(),
		Sessions: []SessionStatus{}, Devices: []wire.HardwareDevice{}, Warnings: []string{},
		Audit: AuditStatus{Seq: head.Seq, HMAC: head.HMAC, Bytes: d.audit.Size()},
	}
	if d.registry != nil {
		s.Devices = d.registry.List()
		for _, p := range d.registry.Problems() {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s devices: %v", p.Type, p.Err))
		}
	}
	for _, why := range d.notRoots {
		s.Warnings = append(s.Warnings, "not offered: "+why)
	}
	if d.shell != nil && d.helper == nil {
		s.Warnings = append(s.Warnings, "shell is "+shellWarning())
	}
	if d.shim != nil {
		c := d.shim.Status()
		s.ConnectionID, s.Granted, s.LastError = c.ConnectionID, c.Granted, c.LastError
		if !c.RetryAt.IsZero() {
			s.RetryAt = &c.RetryAt
		}
		for _, x := range c.Sessions {
			s.Sessions = append(s.Sessions, SessionStatus{ID: x.ID, Root: x.Root, Live: x.Live})
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.State, s.Detail, s.Since, s.Pairing = d.state, d.detail, d.since, d.pairing
	if len(d.unapplied) > 0 {
		s.Warnings = append(s.Warnings, needsRestart(d.unapplied))
	}
	return s
}
