package front

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"farhand/provision/portal"
	"farhand/provision/preseed"
	"farhand/provision/request"
	"farhand/provision/rescue"
	"farhand/provision/screen"
)

// Config is what a Front needs.
type Config struct {
	// Root is the directory below which dev, proc and sys are; empty: /.
	Root   string
	Logger *slog.Logger
	// Name is the machine's, for the rescue network's page.
	Name string

	// Radio makes the rescue network; nil: there is none.
	Radio       rescue.Radio
	AccessPoint rescue.AccessPoint
	// Always is whether the owner wants the rescue network also after the first
	// pairing, and Paired whether that has been.
	Always, Paired bool
	// Country is the one that is known already, as the page's first guess.
	Country string
	// Wifi is what the radio was told. It must not call the Front.
	Wifi func() request.WifiFacts
	// Apply stores a network that a visitor entered, and Join makes it known to
	// the radio once that is a station again.
	Apply func(ctx context.Context, w preseed.Wifi, country string) error
	Join  func(context.Context) error

	// Portal and Check replace the rescue network's page and the look for what
	// would keep it from working; nil: the real ones.
	Portal rescue.Portal
	Check  func(context.Context) error
}

// Front shows how things are. Its methods may be called from several goroutines
// and return at once, but for Close.
type Front struct {
	cfg     Config
	screen  *screen.Screen
	machine *rescue.Machine // nil without a radio

	mu       sync.Mutex
	pairing  *request.Pairing
	status   *request.Status
	offline  bool      // in no network
	nowhere  time.Time // since when in a Wi-Fi that doesn't lead to the relay
	problems []string
	rescue   rescue.State
}

// New begins to show that the system starts.
func New(cfg Config) *Front {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Front{cfg: cfg, screen: screen.New(screen.Config{Root: cfg.Root, Logger: cfg.Logger})}
	if cfg.Radio == nil {
		return f
	}
	page := cfg.Portal
	if page == nil {
		page = portal.New(portal.Config{
			Apply:   cfg.Apply,
			Entered: func() { f.machine.Entered() },
			Active:  func() { f.machine.Active() },
			Name:    cfg.Name, Country: cfg.Country, Logger: cfg.Logger, Root: cfg.Root,
		})
	}
	check := cfg.Check
	if check == nil {
		check = rescue.Check
	}
	f.machine = rescue.New(rescue.Config{
		Radio: cfg.Radio, Portal: page, AccessPoint: cfg.AccessPoint,
		Check: check, Join: cfg.Join, Known: f.known, Allowed: cfg.Always || !cfg.Paired,
		Changed: func(s rescue.State) { f.change(func() { f.rescue = s }) },
		Logger:  cfg.Logger,
	})
	return f
}

// known says whether the radio has a network to join.
func (f *Front) known() bool {
	if f.cfg.Wifi == nil {
		return true
	}
	switch f.cfg.Wifi().State {
	case request.WifiReady, request.WifiOpen:
		return true
	}
	return false
}

// Close ends the rescue network. The screen keeps what it shows.
func (f *Front) Close() error {
	if f.machine != nil {
		_ = f.machine.Close() // never fails
	}
	return f.screen.Close()
}

// ShowPairing shows a code that waits to be approved.
func (f *Front) ShowPairing(p request.Pairing) {
	f.change(func() { f.pairing = &p })
}

// ShowStatus shows a machine for which no code waits.
func (f *Front) ShowStatus(s request.Status) {
	f.change(func() { f.pairing, f.status = nil, &s })
}

// Paired says that the machine has an owner. Unless that one wants it, there is
// no rescue network any more.
func (f *Front) Paired() {
	var always bool
	f.change(func() { f.pairing, f.cfg.Paired, always = nil, true, f.cfg.Always })
	if f.machine != nil && !always {
		f.machine.SetAllowed(false)
	}
}

// SetAlways says whether the owner wants the rescue network after the first
// pairing too.
func (f *Front) SetAlways(always bool) {
	f.mu.Lock()
	f.cfg.Always = always
	allowed := always || !f.cfg.Paired
	f.mu.Unlock()
	if f.machine != nil {
		f.machine.SetAllowed(allowed)
	}
}

// Offline says that the relay can't be reached. Before the first pairing a Wi-Fi
// that hasn't led to it for a while is as good as none: it may be one with a page to
// log in on, and nobody could give the machine another.
func (f *Front) Offline(o request.Offline) {
	known := o.KnownNetwork
	f.change(func() {
		switch {
		case !known: // while the rescue network runs, too
		case !o.Wireless || f.cfg.Paired:
			f.nowhere = time.Time{}
		case f.nowhere.IsZero():
			f.nowhere = time.Now()
		case time.Since(f.nowhere) >= rescue.Nowhere:
			known = false
		}
		f.offline = !o.KnownNetwork
	})
	if f.machine != nil {
		f.machine.Offline(o.Since, known)
	}
}

// Online says that the relay is reached.
func (f *Front) Online() {
	f.change(func() { f.offline, f.nowhere = false, time.Time{} })
	if f.machine != nil {
		f.machine.Online()
	}
}

// SetProblems says what to warn of whatever else is shown, a sentence each.
func (f *Front) SetProblems(problems []string) {
	f.change(func() { f.problems = slices.Clone(problems) })
}

// Busy says whether something would end with Close that must go on: a rescue
// network, or the wait for one, or a code that is repeated on the serial
// console.
func (f *Front) Busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pairing != nil || f.rescue.Phase != "" && f.rescue.Phase != rescue.Idle
}

// Page is what is shown, for the notes on the boot partition.
func (f *Front) Page(now time.Time) screen.Page {
	f.mu.Lock()
	defer f.mu.Unlock()
	return screen.Compose(f.view(), now)
}

// change does what it is told with the lock held, and shows the result.
func (f *Front) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	f.screen.Show(f.view())
}

// view is what to show. The caller holds the lock.
func (f *Front) view() screen.View {
	v := screen.View{Pairing: f.pairing, Status: f.status, Problems: f.problems}
	if f.cfg.Wifi != nil {
		v.Wifi = f.cfg.Wifi()
	}
	if f.pairing != nil {
		// While a code waits the daemon tells of nothing else; but that there is
		// no network must be told, since a code that nobody can look up waits in
		// vain.
		v.Status = nil
		if f.offline {
			v.Status = &request.Status{State: "offline"}
		}
	}
	switch f.rescue.Phase {
	case rescue.Up:
		v.Rescue = &screen.Rescue{SSID: f.cfg.AccessPoint.SSID, Passphrase: f.cfg.AccessPoint.Passphrase, URL: rescue.URL()}
	case rescue.Failed:
		v.Rescue = &screen.Rescue{Problem: f.rescue.Problem}
	}
	if f.rescue.Note != "" {
		v.Problems = append(slices.Clone(v.Problems), f.rescue.Note)
	}
	if f.rescue.Phase == rescue.Trying {
		v.Problems = append(slices.Clone(v.Problems), fmt.Sprintf("Joining the Wi-Fi network that was entered: up to %d seconds.", rescue.JoinLimit/time.Second))
	}
	return v
}
