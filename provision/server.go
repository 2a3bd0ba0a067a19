package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"farhand/provision/front"
	"farhand/provision/preseed"
	"farhand/provision/render"
	"farhand/provision/request"
	"farhand/provision/rescue"
)

// Server answers the daemon's requests. It is a request.Handler.
type Server struct {
	sys    *System
	report bootReport
	front  *front.Front

	// mu is never held while the front is called: that asks for the radio's
	// state with a lock of its own held.
	mu      sync.Mutex
	store   store
	kept    bool   // the store could be read
	trouble string // what failed last, for the screen

	changing sync.Mutex         // held while settings change, over mu
	attempt  *attempt           // to reach the relay with changed networks; under mu
	ctx      context.Context    // ends with Close, and so does work
	end      context.CancelFunc //
	work     sync.WaitGroup

	ollama sync.Mutex // held while the local model's server changes

	card  sync.Mutex // held while the card is written, over mu
	shown string     // the code that the card's files have; empty: not known
}

var _ request.Handler = (*Server)(nil)

// NewServer begins to show that the system starts. radio makes the rescue
// network; nil where there is none.
func NewServer(s *System, radio rescue.Radio) (*Server, error) {
	srv := &Server{sys: s}
	srv.ctx, srv.end = context.WithCancel(context.Background())
	var err error
	if srv.report, err = s.loadReport(); err != nil {
		s.Log.Error("what the start found out can't be read; was it provisioned?", "error", err)
	} else if srv.store, err = loadStore(srv.report.Store); err != nil {
		s.Log.Error("what was provisioned can't be read", "error", err)
	} else {
		srv.kept = true
	}
	settings := srv.store.effective()
	hostname := render.Hostname(s.input(srv.store))
	passphrase := settings.Farhand.RescuePassphrase
	if passphrase == "" {
		passphrase = srv.store.Passphrase
	}
	if passphrase == "" {
		radio = nil // a rescue network without one is none
	}
	srv.front = front.New(front.Config{
		Root: s.Root, Logger: s.Log, Name: hostname,
		Radio: radio, AccessPoint: rescue.AccessPoint{SSID: hostname[:min(len(hostname), 32)], Passphrase: passphrase},
		Always: settings.Farhand.WifiRescue, Paired: srv.store.Paired, Country: settings.Country,
		Wifi: srv.wifi, Apply: srv.apply, Join: srv.join,
	})
	srv.front.SetProblems(srv.problems())
	if err := srv.tidyOllama(); err != nil {
		s.Log.Error("what an installation of the local model's server left", "error", err)
	}
	if srv.store.Before != nil { // it started with networks that still wait for the relay
		srv.try(0)
	}
	return srv, nil
}

// Close ends the rescue network. The screen keeps what it shows, and changed
// networks that wait for the relay do so in the next process.
func (srv *Server) Close() error {
	srv.end()
	srv.work.Wait()
	return srv.front.Close()
}

// Busy says whether something would end with the process that must go on.
func (srv *Server) Busy() bool {
	srv.mu.Lock()
	pending := srv.store.Before != nil
	srv.mu.Unlock()
	return pending || srv.front.Busy()
}

// problems are what the screen warns of. The caller holds the lock, or is the
// only one yet.
func (srv *Server) problems() []string {
	var all []string
	if srv.report.Degraded != "" {
		all = append(all, srv.report.Degraded)
	}
	if srv.store.Cloned {
		all = append(all, "This card was in another board: it has a new identity and must be paired anew.")
	}
	for _, i := range srv.report.Report {
		if i.Outcome == preseed.Refused && len(all) < 4 {
			all = append(all, i.Item+": "+i.Why)
		}
	}
	if srv.trouble != "" {
		all = append(all, srv.trouble)
	}
	return all
}

// wifi is called by the front.
func (srv *Server) wifi() request.WifiFacts {
	srv.mu.Lock()
	settings := srv.store.effective()
	srv.mu.Unlock()
	return srv.sys.wifi(settings)
}

// ShowPairing implements request.Handler.
func (srv *Server) ShowPairing(ctx context.Context, p request.Pairing) error {
	srv.front.ShowPairing(p)
	if err := srv.writeCode(ctx, p); err != nil {
		return fmt.Errorf("write the code on the card: %w", err)
	}
	return nil
}

// ShowStatus implements request.Handler.
func (srv *Server) ShowStatus(ctx context.Context, st request.Status) error {
	srv.front.ShowStatus(st)
	err := srv.sys.keepTime()
	if noteErr := srv.writeStatus(ctx, st); noteErr != nil {
		err = errors.Join(err, fmt.Errorf("write on the card why it isn't connected: %w", noteErr))
	}
	return err
}

// Paired implements request.Handler.
func (srv *Server) Paired(ctx context.Context) error {
	srv.front.Paired()
	err := srv.change(func(st *store) bool {
		changed := !st.Paired || st.Cloned
		st.Paired, st.Cloned = true, false
		return changed
	})
	return errors.Join(err, srv.removeCode(ctx))
}

// Facts implements request.Handler.
func (srv *Server) Facts(context.Context) (request.Facts, error) {
	srv.mu.Lock()
	st := srv.store
	srv.mu.Unlock()
	return srv.sys.facts(st, srv.report), nil
}

// Offline implements request.Handler.
func (srv *Server) Offline(_ context.Context, o request.Offline) error {
	srv.front.Offline(o)
	return nil
}

// Online implements request.Handler.
func (srv *Server) Online(context.Context) error {
	srv.front.Online()
	return nil
}

// SetClockHint implements request.Handler.
func (srv *Server) SetClockHint(_ context.Context, h request.ClockHint) error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return srv.sys.hint(h)
}

// change changes the store, and keeps it if it changed.
func (srv *Server) change(do func(*store) bool) error {
	srv.mu.Lock()
	changed := do(&srv.store)
	var err error
	if changed && srv.kept {
		err = saveStore(srv.report.Store, srv.store)
	}
	srv.trouble = ""
	if err != nil {
		srv.trouble = "Nothing can be kept: the data partition can't be written."
	}
	problems := srv.problems()
	srv.mu.Unlock()
	srv.front.SetProblems(problems)
	return err
}

// apply keeps a network that a visitor of the rescue network entered. It is
// tried when the rescue network ends, by join.
func (srv *Server) apply(_ context.Context, w preseed.Wifi, country string) error {
	srv.mu.Lock()
	if srv.attempt != nil {
		srv.attempt.end() // whoever stands beside it knows better
	}
	srv.mu.Unlock()
	return srv.change(func(st *store) bool {
		st.Network = &network{Wifi: w, Country: country}
		st.Before = nil
		return true
	})
}

// join makes the network known to the radio.
func (srv *Server) join(ctx context.Context) error {
	srv.mu.Lock()
	settings := srv.store.effective()
	srv.mu.Unlock()
	return srv.sys.rejoin(ctx, settings)
}
