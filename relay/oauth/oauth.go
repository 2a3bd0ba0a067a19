package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"farhand/relay/access"
	"farhand/relay/limit"
	"farhand/relay/store"
	"farhand/wire"
)

// ClientID is the public OAuth client that devices are, and Scope what they
// ask for: the AutoGPT platform's names, so that its own shim can log in here.
const (
	ClientID = "autogpt-local-executor"
	Scope    = "USE_TOOLS"
)

// Config is what a Server needs.
type Config struct {
	Store store.Store
	// Shared says that other instances of the relay write to the Store, too.
	Shared bool
	// Limits bound how fast each login and token may call; nil: nothing is bounded.
	Limits *limit.Limits
	// PublicURL is where browsers and devices reach the relay: scheme, host and
	// port, nothing after it. Forms are accepted from this origin alone. With
	// https, cookies are Secure and __Host-.
	PublicURL string
	// ClientIDs are the public clients; empty: ClientID alone.
	ClientIDs []string
	// Passphrases is what hashing one costs; zero: 3 passes over 64 MiB (RFC 9106).
	Passphrases Argon2
	// Record writes to the relay's audit log; an error refuses what it was to
	// record. Nil records nothing.
	Record func(Event) error
	Log    *slog.Logger
}

// Server is the authority. Safe for concurrent use. Close it after the HTTP
// server has ended and before the store.
type Server struct {
	store      store.Store
	public     string // without a slash at the end
	secure     bool
	clients    map[string]bool
	key        []byte // the relay's own secret
	inner      []byte // of this process, or of all that share the store
	log        *slog.Logger
	limits     *limit.Limits
	recorder   func(Event) error
	pages      *pages
	hasher     *hasher
	cache      *cache
	attempts   *backoff      // logins, by account and by address
	missesBy   *hourly       // user codes that don't exist, by account
	missesFrom *hourly       // and by address
	polls      *polls        // how often device codes are asked about
	arrivals   *rate.Limiter // device authorisations, all together
	arrivalsBy *hourly       // and by address
	live       atomic.Pointer[access.Sockets]

	stop context.CancelFunc
	done sync.WaitGroup
}

var _ access.Authority = (*Server)(nil)

const (
	// Five misses of an account and twenty of an address in an hour: at 20^8
	// codes and a thousand pending ones, 20 tries an hour for a year from one
	// address hit one with a chance of 0.7 %.
	missesPerAccount = 5
	missesPerAddress = 20
	// A device authorisation lives an hour, so one a second on average bounds
	// how many can be pending; the burst is a classroom that is switched on.
	authorizationsPerSecond = 1
	authorizationsBurst     = 500
	// authorizationsPerAddress is in an hour: a site behind one address that
	// provisions its boards, not a flood.
	authorizationsPerAddress = 600
)

// New makes a Server and starts what keeps its cache true. ctx is for reading
// the store at start.
func New(ctx context.Context, cfg Config) (*Server, error) {
	u, err := url.Parse(cfg.PublicURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("public URL %q: want http(s)://host[:port] and nothing after it", cfg.PublicURL)
	}
	s := &Server{
		store:      cfg.Store,
		public:     u.Scheme + "://" + strings.ToLower(u.Host),
		secure:     u.Scheme == "https",
		inner:      randomBytes(sha256.Size),
		clients:    make(map[string]bool),
		log:        cfg.Log,
		limits:     cfg.Limits,
		recorder:   cfg.Record,
		pages:      newPages(),
		hasher:     newHasher(cfg.Passphrases),
		cache:      newCache(),
		attempts:   newBackoff(),
		missesBy:   newHourly(missesPerAccount),
		missesFrom: newHourly(missesPerAddress),
		polls:      newPolls(),
		arrivals:   rate.NewLimiter(authorizationsPerSecond, authorizationsBurst),
		arrivalsBy: newHourly(authorizationsPerAddress),
	}
	if len(cfg.ClientIDs) == 0 {
		s.clients[ClientID] = true
	}
	for _, id := range cfg.ClientIDs {
		s.clients[id] = true
	}
	if s.key, err = ownKey(ctx, cfg.Store); err != nil {
		return nil, err
	}
	if cfg.Shared { // an agent at one instance reaches machines at another
		s.inner = keyed(s.key, "inner of all instances")
	}
	wctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	changes, err := cfg.Store.Watch(wctx, store.Prefix("o"))
	if err != nil {
		stop()
		return nil, fmt.Errorf("watching the store: %w", err)
	}
	s.stop = stop
	// What this relay changes is forgotten at once; the watch is for changes
	// made by another relay on the same store.
	s.done.Go(func() {
		for ev := range changes {
			s.cache.changed(ev.Key)
			if cfg.Shared {
				s.follow(ev)
			}
		}
		s.cache.disable()
	})
	return s, nil
}

// Close stops what New started.
func (s *Server) Close() error {
	s.stop()
	s.done.Wait()
	return nil
}

// Connect tells the Server where the live sockets are. Until then nothing is
// online and revocations reach no socket.
func (s *Server) Connect(live access.Sockets) { s.live.Store(&live) }

// Register mounts the OAuth endpoints, the pages and the management API.
func (s *Server) Register(mux *http.ServeMux) {
	s.registerOAuth(mux)
	s.registerPages(mux)
	s.registerAPI(mux)
}

func (s *Server) sockets() access.Sockets {
	if p := s.live.Load(); p != nil {
		return *p
	}
	return noSockets{}
}

// noSockets stands in until Connect.
type noSockets struct{}

func (noSockets) Online(string, string) bool                      { return false }
func (noSockets) Hello(string, string) *wire.Hello                { return nil }
func (noSockets) Facts(string, string) *wire.MachineFacts         { return nil }
func (noSockets) RevokeFamily(string, string)                     {}
func (noSockets) RevokeMachine(string, string)                    {}
func (noSockets) RevokeHolder(string, string)                     {}
func (noSockets) ApprovalChanged(context.Context, string, string) {}
func (noSockets) Approved(string, string, wire.Ceiling)           {}

// ownKey reads the relay's secret, or makes it at the first start.
func ownKey(ctx context.Context, s store.Store) ([]byte, error) {
	type record struct {
		Key []byte `json:"key"`
	}
	r, err := change(ctx, s, "relay.key", func(r *stored[record]) error {
		if r.revision != 0 {
			return errUnchanged
		}
		r.value.Key = randomBytes(sha256.Size)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the relay's key: %w", err)
	}
	if len(r.Key) != sha256.Size {
		return nil, errors.New("the relay's key in the store has a wrong length")
	}
	return r.Key, nil
}

// clientAddress is whom limits count: an address, for IPv6 its /64, since a
// customer has at least that.
func clientAddress(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	a := ap.Addr().Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// shownAddress is what a person is shown.
func shownAddress(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return ap.Addr().Unmap().WithZone("").String()
}

// retryAfter rounds up to whole seconds, at least one.
func retryAfter(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
