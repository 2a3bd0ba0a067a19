// Package clienttest is a scripted relay with one scripted machine behind it,
// for tests of the operator's side over real HTTP and a real WebSocket. It
// answers as docs/relay-api.md says and keeps everything in memory.
package clienttest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/client"
	"farhand/stream"
	"farhand/wire"
)

// What the relay and its machine are at the start.
const (
	OwnerName   = "ann"
	Passphrase  = "correct horse battery"
	SetupToken  = "setup-token"
	OwnerToken  = "fh_op_owner"
	MachineID   = "8f14e45f-ceea-467a-9575-aaaaaaaaaaaa"
	MachineName = "pi"
	UserCode    = "BCDF-GHJK"
)

// Epoch is when everything in the relay happened.
func Epoch() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// Handler answers one request of an operator. A nil answer with a nil error
// leaves the request without an answer.
type Handler func(env wire.Envelope) (wire.Type, any, error)

// Relay is the scripted relay. Once it has served a request, its fields are
// changed by Change alone.
type Relay struct {
	*httptest.Server
	Machines  []client.Machine
	Approvals map[string]client.Approval
	Roots     []client.Root
	Audit     client.AuditReport
	Device    *Memory                                           // the machine
	Grants    client.Grants                                     // Offered, Effective and Tokens of every machine
	Handle    Handler                                           // before Device, unless it is nil; ErrPass leaves it to Device
	Refuse    func(r *http.Request) (status int, e *wire.Error) // before everything, unless it is nil
	// Streams are the machine's. A Handler opens one and answers with its id
	// anywhere in the payload; it flows once that answer has left.
	Streams *stream.Hub

	mu       sync.Mutex
	calls    []string
	bodies   map[string]json.RawMessage
	sessions []client.SessionInfo
	tokens   []client.Token
	claims   []client.Claim
	sockets  map[*websocket.Conn]*sender
	hotplug  []*stream.Stream
	next     int
	revision int // of all approvals
}

// ErrPass is a Handler's word that it has nothing to say.
const ErrPass wire.Code = "PASS"

// New starts a relay on plain HTTP, which ends with the test.
func New(t testing.TB) *Relay {
	r, stop := Start()
	t.Cleanup(stop)
	return r
}

// Start is New outside of a test, as in an example: stop ends it.
func Start() (r *Relay, stop func()) {
	r = fresh()
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r, r.stop
}

// NewTLS starts one with a certificate of its own, and returns its pin.
func NewTLS(t testing.TB) (r *Relay, pin string) {
	r = fresh()
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	r.Server.Config.ErrorLog = quiet()
	r.EnableHTTP2 = true // as a relay has it
	r.StartTLS()
	t.Cleanup(r.stop)
	sum := sha256.Sum256(r.Certificate().Raw)
	return r, hex.EncodeToString(sum[:])
}

func fresh() *Relay {
	all := wire.Capabilities{wire.DirectoryBrowse, wire.Files, wire.Shell, wire.HardwareSerial}
	allowed := []wire.Capability{wire.Files, wire.Shell, wire.HardwareSerial}
	return &Relay{
		Machines: []client.Machine{{
			ID: MachineID, Name: MachineName, DisplayName: "raspberrypi", Online: true, Platform: "linux", Arch: "arm64",
			ShimVersion: "1.0.0", Board: "Raspberry Pi 4 Model B", Capabilities: all,
			Approval: wire.Ceiling{Capabilities: &allowed}, ApprovedAt: Epoch(), LastSeen: Epoch(),
		}},
		Approvals: map[string]client.Approval{UserCode: {
			UserCode: UserCode, MachineID: "b6d767d2", DisplayName: "bench", Board: "Raspberry Pi Zero 2 W",
			SerialSuffix: "9f3a", Address: "192.0.2.7", RequestedAt: Epoch(), ExpiresAt: Epoch().Add(time.Hour),
			Capabilities: wire.Capabilities{wire.DirectoryBrowse, wire.Files, wire.Shell, wire.HardwareSerial},
		}},
		Roots:  []client.Root{{Name: "work", Path: "/data/work"}, {Name: "logs", Path: "/data/work/logs"}, {Name: "srv", Path: "/srv"}},
		Audit:  client.AuditReport{OK: true, Seq: 42, HMAC: strings.Repeat("ab", 32), Problems: []string{}, Anchor: &wire.Anchor{Seq: 41, HMAC: strings.Repeat("cd", 32)}},
		Device: NewDevice(),
		Grants: client.Grants{Approved: Epoch(), Offered: allowed, Tokens: []client.TokenGrant{},
			Effective: client.Reach{Capabilities: allowed, Devices: []client.DeviceReach{}}},
		bodies:  make(map[string]json.RawMessage),
		sockets: make(map[*websocket.Conn]*sender),
		Streams: stream.NewHub(stream.HubOptions{}),
	}
}

// stop ends the server and every socket.
func (r *Relay) stop() {
	r.Cut()
	r.CloseClientConnections()
	r.Close()
	r.Streams.Close()
}

// Cut breaks every operator's WebSocket without a word.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ws := range r.sockets {
		ws.NetConn().Close()
	}
}

// Change changes the fields of r while no request reads them.
func (r *Relay) Change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Calls lists the management calls and requests so far, such as
// "POST /api/sessions" and "FILE_STAT".
func (r *Relay) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Body is the last body that such a call had.
func (r *Relay) Body(call string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.bodies[call])
}

// Forget drops every session, as a relay that lost them would.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = nil
}

func (r *Relay) note(call string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	if len(body) < 1<<16 {
		r.bodies[call] = slices.Clone(body)
	}
}
