package octoprint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"farhand/device"
	"farhand/octoprint/rest"
	"farhand/wire"
)

// Files opens files of the device for a session: below the session's root, as
// FILE_READ would. The error is a wire code that names the path.
type Files interface {
	Open(ctx context.Context, session, path string) (r io.ReadCloser, size int64, err error)
}

// Options configure Servers.
type Options struct {
	Printers []Printer
	// StateDir holds printers.json; empty: nothing is kept.
	StateDir string
	// Files opens what PRINTER_UPLOAD sends; nil: it is FEATURE_NOT_SUPPORTED.
	Files Files
	// Browse looks for printers in the network; nil: it isn't looked. What is
	// found is listed as unavailable, for the owner to add.
	Browse Browser
	// App is the name under which a key is asked for and that the owner is
	// shown; empty: "Farhand".
	App       string
	UserAgent string
	Dial      rest.DialFunc // nil: the network
	Log       *slog.Logger
}

// Printer is one printer of the configuration.
type Printer struct {
	Name string   // the id is printer:NAME
	URL  *url.URL // of the server, with the path prefix if it has one
	// KeyFile has the API key and nothing else; empty: the one that PRINTER_JOIN
	// stored.
	KeyFile string
	// Key is the key itself, over both; for what is made in the process.
	Key string
	// Desc describes it; empty: where it is.
	Desc string
}

// Servers is the driver and the service of printers that a server stands before.
// Close it when done.
type Servers struct {
	opts     Options
	log      *slog.Logger
	store    *store
	printers []*printer
	byID     map[string]*printer

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	found   []Found
	changed func()
}

var (
	_ device.Driver  = (*Servers)(nil)
	_ device.Service = (*Servers)(nil)
)

// printer is one server.
type printer struct {
	Printer
	id     string
	client *rest.Client
	own    *Servers
	log    *slog.Logger

	heating chan struct{} // holds a token while somebody sets targets, or switches heaters off

	mu    sync.Mutex
	owed  map[string]bool // heaters that nobody has any more and that are to go off
	tries int             // how often that is still tried; above 0 while coolLater runs
}

// NewServers makes the family. It connects to nothing by itself, but for what
// Browse does.
func NewServers(o Options) (*Servers, error) {
	o.App = cmp.Or(o.App, "Farhand")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Servers{opts: o, log: o.Log, store: openStore(o.StateDir, o.Log), byID: make(map[string]*printer)}
	for _, c := range o.Printers {
		if err := CheckName(c.Name); err != nil {
			return nil, err
		}
		id := "printer:" + c.Name
		if s.byID[id] != nil {
			return nil, fmt.Errorf("two printers are called %q", c.Name)
		}
		p := &printer{
			Printer: c, id: id, own: s, log: o.Log.With("printer", c.Name),
			heating: make(chan struct{}, 1), owed: make(map[string]bool),
		}
		p.client = rest.New(rest.Options{Base: c.URL, Key: p.key(), Dial: o.Dial, UserAgent: o.UserAgent})
		s.printers, s.byID[id] = append(s.printers, p), p
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if o.Browse != nil {
		s.work.Go(s.browse)
	}
	return s, nil
}

// CheckName says whether a printer may have this name.
func CheckName(name string) error {
	bad := len(name) == 0 || len(name) > 32 || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
	for _, taken := range []string{"usb-", "found-", "lp"} {
		bad = bad || strings.HasPrefix(name, taken)
	}
	if bad {
		return fmt.Errorf("%q is no name for a printer: 1 to 32 letters, digits, '.', '_' and '-', and not beginning with usb-, found- or lp", name)
	}
	return nil
}

// Close ends what runs in the background and waits for it. The leases must have
// ended before.
func (s *Servers) Close() error {
	s.cancel()
	s.work.Wait()
	for _, p := range s.printers {
		p.client.Close()
	}
	return nil
}

// Type is "printer".
func (*Servers) Type() string { return device.Printer }

// OnChange has hook called when Probe would answer something else than before.
// It must not call s.
func (s *Servers) OnChange(hook func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = hook
}

func (s *Servers) notify() {
	s.mu.Lock()
	hook := s.changed
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
}

// Probe lists the configured printers, whether or not they answer, and those
// that were found.
func (s *Servers) Probe(ctx context.Context) ([]device.Descriptor, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var all []device.Descriptor
	for _, p := range s.printers {
		all = append(all, p.describe())
	}
	s.mu.Lock()
	found := slices.Clone(s.found)
	s.mu.Unlock()
	for _, f := range found {
		if !s.configured(f) {
			all = append(all, f.describe())
		}
	}
	return all, nil
}

func (p *printer) describe() device.Descriptor {
	d := device.Descriptor{
		HardwareDevice: wire.HardwareDevice{
			Type: device.Printer, ID: p.id, Desc: cmp.Or(device.Clean(p.Desc), device.Clean("3D printer at "+p.URL.Host+p.URL.Path)),
			Driver: "octoprint", Aliases: []string{p.URL.String()}, Available: true,
		},
		Instance: p.URL.String(),
	}
	if !p.client.HasKey() {
		d.Reason = "no API key yet: PRINTER_JOIN asks the owner for one"
	}
	return d
}

// key is the key as it is known now.
func (p *printer) key() string {
	if p.Key != "" {
		return p.Key
	}
	if p.KeyFile == "" {
		return p.own.store.get(p.Name, p.URL.String()).Key
	}
	key, err := readKey(p.KeyFile)
	if err != nil {
		p.log.Warn("the printer's API key can't be read", "file", p.KeyFile, "error", err)
	}
	return key
}

// readKey reads a file that holds one API key.
func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode()&fs.ModeType != 0 {
		return "", errors.Join(err, errors.New("not a regular file"))
	}
	const most = 512 // OctoPrint's have 32 or 43 characters
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(b))
	if len(b) > most || key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("it must hold one API key and nothing else")
	}
	return key, nil
}

// Recover switches off the heaters that a session of an earlier process left
// on, as its lease's end would have. It waits for at most as long as ctx lasts;
// what didn't succeed is tried again in the background.
func (s *Servers) Recover(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.printers {
		hot := s.store.get(p.Name, p.URL.String()).Hot
		if len(hot) == 0 {
			continue
		}
		all.Go(func() {
			if p.owe(ctx, hot) != nil {
				p.coolLater()
			}
		})
	}
	all.Wait()
}

// Times of the service.
const (
	// opTimeout bounds an operation: the platform waits 30 s for an answer.
	opTimeout = 25 * time.Second
	// coolTimeout bounds one attempt to switch heaters off.
	coolTimeout = 10 * time.Second
)
