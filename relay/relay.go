package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"farhand/audit"
	"farhand/internal/slack"
	"farhand/internal/version"
	"farhand/relay/acts"
	"farhand/relay/cluster"
	"farhand/relay/limit"
	"farhand/relay/metrics"
	"farhand/relay/oauth"
	"farhand/relay/route"
	"farhand/relay/store"
)

// DefaultListen is loopback: a relay that the network can reach is a decision.
const DefaultListen = "127.0.0.1:7443"

const (
	// Times and sizes of the HTTP server. A request's headers and body must be
	// there soon; upgraded sockets have times of their own (relay/route).
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 2 * time.Minute // audit/verify waits for a device
	idleTimeout       = 2 * time.Minute
	maxHeader         = 16 << 10 // bytes; the longest of ours is a consent URL
	// shutdownTime is how long requests may take to end, socketsTime how long
	// peers may take to answer their close frames: one that is gone shouldn't
	// keep the others from the next relay.
	shutdownTime = 10 * time.Second
	socketsTime  = 3 * time.Second
)

// ErrConfig marks errors that only another configuration mends.
var ErrConfig = errors.New("bad configuration")

// Config is what a Relay needs. DataDir and Log must be set.
type Config struct {
	Listen   string       // host:port; empty: DefaultListen
	Listener net.Listener // instead of Listen
	DataDir  string       // made if it isn't there, mode 0700
	// PublicURL is where devices and browsers reach the relay. Empty: the name
	// in the certificate, or the loopback address, with the port listened on.
	PublicURL string
	// TLSCert and TLSKey are PEM files, read again when they change. Empty:
	// what Init made in the data directory, else plain HTTP, on loopback only.
	TLSCert, TLSKey string
	// TrustedProxies may say in X-Forwarded-For whom they speak for.
	TrustedProxies []netip.Prefix
	Passphrases    oauth.Argon2 // zero: the default cost
	// Agents makes what answers at /mcp; nil: nothing does. inside is a way to the
	// relay's own API that doesn't leave the process, whatever address is dialled.
	// instance is with what the ids of its sessions have to begin, before a dot, so
	// that other instances know where they are; empty on a relay on its own.
	Agents func(inside Dialer, instance string) Agents
	// Limits bound how fast each login and token may ask. Nil: limit.Default.
	Limits *limit.Rates
	// MetricsListen is host:port where GET /metrics is served, by plain HTTP and to
	// anybody who can connect; empty: nowhere, and nothing is counted.
	MetricsListen string
	// Instance is what this relay is called in its metrics, among others of its
	// kind. Empty: the host's name.
	Instance string
	// Cluster, if it has a URL, makes the relay one instance of several: the state
	// lies in NATS JetStream instead of the data directory.
	Cluster Cluster
	Log     *slog.Logger
}

// Relay is a relay that listens. Run serves; Close ends one that was never run.
type Relay struct {
	cfg      Config
	log      *slog.Logger
	store    store.Store
	nats     *nats.Conn    // nil for a relay on its own, as is node
	replicas int           // of what NATS keeps
	node     *cluster.Node // this instance among the others
	feed     io.Closer     // of the events that they share; likewise
	audit    *audit.Log
	acts     *acts.Book
	limits   *limit.Limits
	auth     *oauth.Server
	router   *route.Server
	agents   Agents        // nil: none
	inside   *inside       // where agents' clients are answered; nil with agents
	certs    *certificates // nil: plain
	listener net.Listener
	admin    net.Listener
	metrics  *metrics.Metrics // nil: nothing is counted, and numbers is nil
	numbers  net.Listener
	url      string
	first    *oauth.Setup
}

// New opens the data directory and listens. Errors that only another
// configuration mends wrap ErrConfig; store.ErrLocked, wrapped, if another relay
// uses the directory.
func New(ctx context.Context, cfg Config) (_ *Relay, err error) {
	r := &Relay{cfg: cfg, log: cfg.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if cfg.DataDir == "" {
		return nil, fmt.Errorf("no data directory: %w", ErrConfig)
	}
	if err = r.openStore(ctx); err != nil {
		return nil, err
	}
	if cfg.MetricsListen != "" {
		if r.numbers, err = net.Listen("tcp", cfg.MetricsListen); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		r.metrics = metrics.New()
		r.store = r.metrics.Timed(r.store)
	}
	if r.certs, err = loadCertificates(cfg); err != nil {
		return nil, err
	}
	if err = r.listen(); err != nil {
		return nil, err
	}
	if r.url, err = r.publicURL(); err != nil {
		return nil, err
	}
	if err = rememberURL(ctx, r.store, r.url); err != nil {
		return nil, err
	}
	var key []byte
	if r.audit, key, err = openAudit(cfg.DataDir, cfg.Log); err != nil {
		return nil, err
	}
	r.acts = acts.Open(filepath.Join(cfg.DataDir, "acts"), key, cfg.Log)
	rates := limit.Default
	if cfg.Limits != nil {
		rates = *cfg.Limits
	}
	r.limits = limit.New(rates)
	feed, err := r.openFeed(ctx)
	if err != nil {
		return nil, err
	}
	r.auth, err = oauth.New(ctx, oauth.Config{
		Store: r.store, Limits: r.limits, Shared: r.node != nil, PublicURL: r.url, Passphrases: cfg.Passphrases, Log: cfg.Log,
		Record: counted(r.metrics, published(feed, recorder(r.audit, r.acts, cfg.Log))),
	})
	if err != nil {
		return nil, err
	}
	r.router = route.New(route.Config{Authority: r.auth, Store: r.store, Cluster: r.node, Limits: r.limits, Acts: r.acts, Events: feed, Metrics: r.metrics, Log: cfg.Log})
	r.metrics.Live(r.router.Live)
	r.metrics.Is(r.cfg.instance(), r.clusterName(), version.String())
	r.auth.Connect(r.router)
	if node := r.node; node != nil {
		if err = r.router.Join(ctx); err != nil {
			return nil, err
		}
		r.metrics.Sees(func() int { return len(node.Peers()) })
	}
	if cfg.Agents != nil {
		r.inside = newInside()
		instance := ""
		if r.node != nil {
			instance = r.node.ID()
		}
		r.agents = cfg.Agents(r.inside.dial, instance)
	}
	setup, needed, err := r.auth.FirstSetup(ctx)
	if err != nil {
		return nil, err
	}
	if needed {
		r.first = &setup
	}
	if r.admin, err = listenAdmin(cfg.DataDir); err != nil {
		return nil, err
	}
	return r, nil
}

// instance is what the relay is called.
func (c Config) instance() string {
	if c.Instance != "" {
		return c.Instance
	}
	host, _ := os.Hostname() // none is a name, too
	return host
}

// URL is where the relay is reached.
func (r *Relay) URL() string { return r.url }

// CASHA256 is what clients pin if the relay made its own CA: the lower-case hex
// SHA-256 of the CA certificate's DER. Empty otherwise.
func (r *Relay) CASHA256() string {
	if r.certs == nil {
		return ""
	}
	return r.certs.caSHA256
}

// FirstSetup is the one-time setup token for the first owner, new with every
// start until there is an owner; nil if there is one.
func (r *Relay) FirstSetup() *oauth.Setup { return r.first }

// Announce prints for a person where the relay is and how the first owner sets
// up. The setup token is a secret: w is the terminal, not a log.
func (r *Relay) Announce(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "farhand-relay %s: %s\n", version.String(), r.url)
	if sum := r.CASHA256(); sum != "" {
		fmt.Fprintf(&b, "ca_sha256: %s\n", sum)
	}
	if r.first != nil {
		fmt.Fprintf(&b, "No owner yet. Open the link once, or give the token to farhand login --setup:\nsetup link: %s\nsetup token: %s\n",
			r.first.Link, r.first.Token)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Run serves until ctx ends, then closes every socket with 1012 so that both
// sides come back to the next relay, and closes the Relay.
func (r *Relay) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	r.auth.Register(mux)
	r.router.Register(mux)
	r.registerRoot(mux)
	api := mux
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if r.agents != nil {
		mux = http.NewServeMux()
		mux.Handle("/", api)
		mux.Handle("/mcp", r.agentEndpoint(running, false))
	}
	public := r.server(fromProxies(r.cfg.TrustedProxies, mux))
	listener := r.listener
	if r.certs != nil {
		listener = r.certs.wrap(listener)
	}
	admin := r.server(adminHandler(r.auth))
	numbers := r.server(nil)

	ended := make(chan error, 6)
	serve := func(s *http.Server, l net.Listener) {
		err := s.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		} else {
			stop(err)
		}
		ended <- err
	}
	inner := r.server(api)
	if r.inside != nil {
		go serve(inner, r.inside)
	} else {
		ended <- nil
	}
	go serve(public, listener)
	go serve(admin, r.admin)
	if r.numbers != nil {
		numbers.Handler = r.metrics.Handler()
		go serve(numbers, r.numbers)
	} else {
		ended <- nil
	}
	instance := r.server(nil)
	if r.node != nil {
		mux := http.NewServeMux()
		r.router.RegisterInstance(mux)
		if r.agents != nil {
			mux.Handle("/mcp", r.agentEndpoint(running, true))
		}
		instance.Handler = route.FromInstance(mux)
		go serve(instance, r.node.Listener())
	} else {
		ended <- nil
	}
	go func() { r.keepCertificates(running); ended <- nil }()
	go func() { slack.Return(running); ended <- nil }()
	r.log.Info("relay serves", "url", r.url, "listen", r.listener.Addr().String(), "version", version.String())

	<-running.Done()
	r.log.Info("relay stops")
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	// The listener closes at once, before the sockets are told to come back.
	quiet := make(chan error, 1)
	go func() {
		quiet <- errors.Join(public.Shutdown(bounded), admin.Shutdown(bounded), instance.Shutdown(bounded), numbers.Shutdown(bounded))
	}()
	if r.agents != nil { // whose streams end by nothing else, and whose clients are operators
		if err := r.agents.Close(); err != nil {
			r.log.Warn("agents not closed", "err", err.Error())
		}
		if err := inner.Shutdown(bounded); err != nil {
			inner.Close()
		}
	}
	patience, enough := context.WithTimeout(bounded, socketsTime)
	defer enough()
	if err := r.router.Shutdown(patience); err != nil {
		r.log.Warn("sockets were cut", "err", err.Error())
	}
	if err := <-quiet; err != nil {
		r.log.Warn("requests were cut", "err", err.Error())
		public.Close()
		admin.Close()
		instance.Close()
		numbers.Close()
	}
	var err error
	for range cap(ended) {
		err = errors.Join(err, <-ended)
	}
	return errors.Join(err, r.Close())
}

// Close gives up everything that New took. It may be called twice.
func (r *Relay) Close() error {
	var errs []error
	if r.agents != nil {
		errs = append(errs, r.agents.Close(), r.inside.Close())
		r.agents = nil
	}
	if r.router != nil {
		errs = append(errs, r.router.Close())
		r.router = nil
	}
	if r.auth != nil {
		errs = append(errs, r.auth.Close())
		r.auth = nil
	}
	for _, l := range []*net.Listener{&r.listener, &r.admin, &r.numbers} {
		if *l == nil {
			continue
		}
		if err := (*l).Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
		*l = nil
	}
	if r.acts != nil {
		errs = append(errs, r.acts.Close())
		r.acts = nil
	}
	if r.audit != nil {
		errs = append(errs, r.audit.Close())
		r.audit = nil
	}
	if r.feed != nil {
		errs = append(errs, r.feed.Close())
		r.feed = nil
	}
	if r.node != nil {
		errs = append(errs, r.node.Close())
		r.node = nil
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
		r.store = nil
	}
	if r.nats != nil {
		r.nats.Close()
		r.nats = nil
	}
	return errors.Join(errs...)
}

func (r *Relay) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// listen opens the public listener; plain HTTP stays on loopback.
func (r *Relay) listen() error {
	l := r.cfg.Listener
	if l == nil {
		addr := r.cfg.Listen
		if addr == "" {
			addr = DefaultListen
		}
		var err error
		if l, err = net.Listen("tcp", addr); err != nil {
			return fmt.Errorf("listening: %w", err)
		}
	}
	r.listener = l
	if r.certs == nil && !isLoopback(l.Addr()) {
		return fmt.Errorf("%s isn't loopback and there is no certificate: run farhand-relay init --name HOST, or give a certificate: %w",
			l.Addr(), ErrConfig)
	}
	return nil
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

func (r *Relay) publicURL() (string, error) {
	if r.cfg.PublicURL != "" {
		return checkURL(r.cfg.PublicURL)
	}
	t, ok := r.listener.Addr().(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("listening on %s needs a public URL: %w", r.listener.Addr(), ErrConfig)
	}
	port := fmt.Sprint(t.Port)
	if r.certs == nil {
		return "http://" + net.JoinHostPort(t.IP.String(), port), nil
	}
	if r.certs.name == "" {
		return "", fmt.Errorf("the certificate names no host, so give a public URL: %w", ErrConfig)
	}
	if port == "443" {
		if strings.Contains(r.certs.name, ":") {
			return "https://[" + r.certs.name + "]", nil
		}
		return "https://" + r.certs.name, nil
	}
	return "https://" + net.JoinHostPort(r.certs.name, port), nil
}

// checkURL puts a public URL in the form that browsers give an origin.
func checkURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("public URL %q: want https://host[:port] and nothing after it: %w", text, ErrConfig)
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return "", fmt.Errorf("public URL %q: plain http is for loopback alone: %w", text, ErrConfig)
		}
		host = strings.TrimSuffix(host, ":80")
	default:
		return "", fmt.Errorf("public URL %q: want https://host[:port]: %w", text, ErrConfig)
	}
	return u.Scheme + "://" + host, nil
}
