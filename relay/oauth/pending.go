package oauth

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"crypto/rand"
	"crypto/subtle"

	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

// User codes: 8 of the 20 consonants that RFC 8628 section 6.1 recommends, no
// vowels so that no words come out.
const (
	userCodeAlphabet = "BCDFGHJKLMNPQRSTVWXZ"
	userCodeLength   = 8
	userCodeLife     = 60 * time.Minute
	pollInterval     = 5 * time.Second
	// pendingKept is how long a code is remembered after its end, so that a
	// device hears that it expired and not that it never was.
	pendingKept = 6 * time.Hour
)

// The states of a pending device.
const (
	statePending  = "pending"
	stateApproved = "approved"
	stateDenied   = "denied"
)

// pending is a device that asked to be let in. Its key is a MAC of the user
// code, so that codes can be looked up without being comparable to anything in
// the store, and the device code names the same record.
type pending struct {
	Device    secretHash        `json:"device"` // of the device code
	CodeMAC   string            `json:"code_mac"`
	ClientID  string            `json:"client_id"`
	MachineID string            `json:"machine_id,omitempty"`
	Display   string            `json:"display_name,omitempty"`
	Board     string            `json:"board,omitempty"`
	Suffix    string            `json:"serial_suffix,omitempty"`
	Wants     []wire.Capability `json:"capabilities"`
	Address   string            `json:"address,omitempty"`
	Asked     time.Time         `json:"asked"`
	Expires   time.Time         `json:"expires"`

	State  string   `json:"state"`
	Owner  string   `json:"owner,omitempty"`
	Family string   `json:"family,omitempty"` // what it becomes
	Grant  approved `json:"grant"`
}

func pendingKey(id string) string { return store.Key("pending", id) }

// codeID makes the record's id and the MAC to compare out of a user code.
func (s *Server) codeID(code string) (id, mac string) {
	sum := keyed(s.key, "user code", code)
	return hex.EncodeToString(sum[:idSize]), hex.EncodeToString(sum)
}

// newUserCode picks every character evenly.
func newUserCode() string {
	b := make([]byte, userCodeLength)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(userCodeAlphabet))))
		if err != nil {
			panic(err) // crypto/rand doesn't fail
		}
		b[i] = userCodeAlphabet[n.Int64()]
	}
	return string(b)
}

// showCode is the code in two groups of four letters, a dash between them.
func showCode(code string) string { return code[:4] + "-" + code[4:] }

// readCode takes a code as a person types it: any case, spaces and dashes.
func readCode(s string) (string, bool) {
	if len(s) > 64 {
		return "", false
	}
	code := strings.Map(func(r rune) rune {
		switch r {
		case ' ', '\t', '-', '_', '.', '\u2010', '\u2011', '\u2012', '\u2013', '\u00a0':
			return -1
		}
		return r
	}, strings.ToUpper(s))
	if len(code) != userCodeLength {
		return "", false
	}
	for i := 0; i < len(code); i++ {
		if strings.IndexByte(userCodeAlphabet, code[i]) < 0 {
			return "", false
		}
	}
	return code, true
}

// deviceAuthorization is RFC 8628 section 3.1, with fields of ours that tell
// the owner what asks.
func (s *Server) deviceAuthorization(r *http.Request) (any, error) {
	p, err := params(r)
	if err != nil {
		return nil, err
	}
	if !s.clients[p["client_id"]] {
		return nil, errInvalidClient
	}
	if scope := p["scope"]; scope != "" && scope != Scope {
		return nil, errInvalidScope
	}
	if id := p["machine_id"]; id != "" && !validMachineID(id) {
		return nil, invalidRequest("machine_id is malformed")
	}
	if _, wait := s.arrivalsBy.take(clientAddress(r)); wait > 0 || !s.arrivals.Allow() {
		return nil, &oauthError{status: http.StatusTooManyRequests, code: "slow_down",
			description: "too many devices ask at once", retryAfter: retryAfter(max(wait, 10*time.Second))}
	}
	asked := now()
	rec := pending{
		ClientID:  p["client_id"],
		MachineID: p["machine_id"],
		Display:   wire.Clean(p["display_name"], wire.MaxDisplayName),
		Board:     wire.Clean(p["board"], wire.MaxDeviceString),
		Suffix:    wire.Clean(p["serial_suffix"], 16),
		Wants:     wants(p["capabilities"]),
		Address:   shownAddress(r),
		Asked:     asked,
		Expires:   asked.Add(userCodeLife),
		State:     statePending,
	}
	userCode, deviceCode, err := s.keepPending(r.Context(), rec)
	if err != nil {
		return nil, err
	}
	s.record(Event{Op: OpDeviceAsked, Machine: rec.MachineID, Address: rec.Address})
	return struct {
		DeviceCode string `json:"device_code"`
		UserCode   string `json:"user_code"`
		URI        string `json:"verification_uri"`
		Complete   string `json:"verification_uri_complete"`
		ExpiresIn  int    `json:"expires_in"`
		Interval   int    `json:"interval"`
	}{
		DeviceCode: deviceCode,
		UserCode:   showCode(userCode),
		URI:        s.public + "/device",
		Complete:   s.public + "/device?user_code=" + showCode(userCode),
		ExpiresIn:  int(userCodeLife / time.Second),
		Interval:   int(pollInterval / time.Second),
	}, nil
}

func (s *Server) keepPending(ctx context.Context, rec pending) (userCode, deviceCode string, err error) {
	for range casAttempts {
		userCode = newUserCode()
		id, mac := s.codeID(userCode)
		deviceCode = mint(prefixDevice, ref{id: id}, secretSize)
		rec.Device, rec.CodeMAC = hashSecret(deviceCode), mac
		err = create(ctx, s.store, pendingKey(id), rec, rec.Expires.Add(pendingKept))
		if !errors.Is(err, store.ErrExists) {
			return userCode, deviceCode, err
		}
	}
	return "", "", err
}

// redeemDevice is a poll of RFC 8628 section 3.4.
func (s *Server) redeemDevice(ctx context.Context, p map[string]string) (issued, error) {
	text := p["device_code"]
	if text == "" {
		return issued{}, invalidRequest("device_code is missing")
	}
	open, ok := parse(text, prefixDevice, 0, secretSize)
	if !ok {
		return issued{}, errInvalidGrant
	}
	rec, err := s.pendingOf(ctx, open.id, text)
	if err != nil {
		return issued{}, err
	}
	if rec.ClientID != p["client_id"] {
		return issued{}, errInvalidGrant
	}
	if !now().Before(rec.Expires) {
		s.polls.forget(open.id)
		return issued{}, errExpired
	}
	switch rec.State {
	case stateApproved:
		return s.redeemApproved(ctx, open.id, text, rec)
	case stateDenied:
		s.polls.forget(open.id)
		return issued{}, errDenied
	}
	if s.polls.tooEarly(open.id) {
		return issued{}, errSlowDown
	}
	return issued{}, errPending
}

func (s *Server) pendingOf(ctx context.Context, id, deviceCode string) (pending, error) {
	r, err := load[pending](ctx, s.store, pendingKey(id))
	if errors.Is(err, store.ErrNotFound) || (err == nil && !r.value.Device.matches(deviceCode)) {
		return pending{}, errInvalidGrant
	}
	return r.value, err
}

// redeemApproved turns an approved device into its family. The answer may have
// been lost, so the code works again until its pair has been used.
func (s *Server) redeemApproved(ctx context.Context, id, text string, rec pending) (issued, error) {
	s.polls.forget(id)
	if rec.MachineID != "" {
		if _, err := s.admit(ctx, rec.Owner, rec.MachineID, rec.Grant); err != nil {
			return issued{}, err
		}
	}
	fam := family{
		ID: rec.Family, Owner: rec.Owner, ClientID: rec.ClientID, MachineID: rec.MachineID,
		Source: grantDevice, Grant: rec.Grant,
	}
	out, err := s.newFamily(ctx, fam)
	if errors.Is(err, store.ErrExists) {
		_, err = s.changeFamily(ctx, rec.Owner, rec.Family, func(f *family) error {
			var err error
			out, err = f.reissue(now())
			return err
		})
	}
	if err != nil {
		return issued{}, err
	}
	// The owner may have removed the machine since the record was read; then
	// either that removal found this family, or this look finds the removal.
	again, err := s.pendingOf(ctx, id, text)
	if err != nil && !errors.Is(err, errInvalidGrant) {
		return issued{}, err // the device polls on, and gets another pair
	}
	if err != nil || again.State != stateApproved {
		if err := s.revokeFamily(ctx, rec.Owner, rec.Family, "no longer approved"); err != nil {
			return issued{}, err
		}
		return issued{}, errDenied
	}
	s.record(Event{Op: OpTokensIssued, Owner: rec.Owner, Machine: rec.MachineID, Family: rec.Family, Reason: "device code"})
	return out, nil
}

// Failures of looking up a user code.
var (
	errNoSuchCode = errors.New("no device waits with this code")
	errDecided    = errors.New("this code was decided already")
)

// waitError says that somebody has to wait.
type waitError struct {
	wait time.Duration
	what string
}

func (e *waitError) Error() string {
	return fmt.Sprintf("%s: try again in %s", e.what, age(e.wait.Round(time.Second)))
}

// findCode looks up a user code for an owner, within the limits on misses.
// errNoSuchCode, errDecided or a *waitError.
func (s *Server) findCode(ctx context.Context, who Event, text, from string) (id string, rec pending, err error) {
	const tooMany = "too many codes that don't exist"
	undoOwner, wait := s.missesBy.take(who.Owner)
	if wait > 0 {
		return "", pending{}, &waitError{wait, tooMany}
	}
	undoFrom, wait := s.missesFrom.take(from)
	if wait > 0 {
		undoOwner()
		return "", pending{}, &waitError{wait, tooMany}
	}
	hit := func() { undoOwner(); undoFrom() }

	// A malformed code costs what a wrong one costs, in time and in tries.
	code, _ := readCode(text)
	id, mac := s.codeID(code)
	r, err := load[pending](ctx, s.store, pendingKey(id))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		hit() // the store's fault, nobody's miss
		return "", pending{}, err
	}
	rec = r.value
	if subtle.ConstantTimeCompare([]byte(rec.CodeMAC), []byte(mac)) != 1 || !now().Before(rec.Expires) {
		who.Op, who.Refused = OpCodeMissed, true
		s.record(who)
		return "", pending{}, errNoSuchCode
	}
	hit()
	if rec.State != statePending {
		return "", pending{}, errDecided
	}
	return id, rec, nil
}

// paired is a machine that the owner has already under the id of one that asks: the
// same one that pairs anew, or two that call themselves the same.
type paired struct {
	Name     string     `json:"name"`
	Board    string     `json:"board"`
	Approved time.Time  `json:"approved_at"`
	Online   bool       `json:"online"`
	LastSeen *time.Time `json:"last_seen"`
}

// already is the machine whose place the one of rec would take; nil if there is none.
func (s *Server) already(ctx context.Context, owner string, rec pending) (*paired, error) {
	if rec.MachineID == "" {
		return nil, nil
	}
	m, err := s.Machine(ctx, owner, rec.MachineID)
	if errors.Is(err, access.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &paired{Name: m.Name, Board: m.Board, Approved: m.ApprovedAt,
		Online: s.sockets().Online(owner, m.ID), LastSeen: timeOrNull(m.LastSeen)}, nil
}

// decision is what an owner says about a pending device.
type decision struct {
	approve bool
	name    string // empty: made from the display name
	ceiling wire.Ceiling
}

// decide approves or denies the device of a pending record, and returns the
// machine's name. errDecided if somebody was faster, errNameTaken.
func (s *Server) decide(ctx context.Context, who Event, id string, rec pending, d decision) (string, error) {
	who.Machine = rec.MachineID
	at, err := s.approvalTime(ctx, who.Owner, rec.MachineID)
	if err != nil {
		return "", err
	}
	grant := approved{Name: d.name, Display: rec.Display, Board: rec.Board, Ceiling: d.ceiling, At: at}
	if d.approve && d.name != "" && rec.MachineID != "" {
		if err := s.takeName(ctx, who.Owner, d.name, rec.MachineID); err != nil {
			return "", err
		}
	}
	who.Op = OpDenied
	if d.approve {
		who.Op = OpApproved
	}
	if err := s.intend(who); err != nil {
		return "", err
	}
	_, err = change(ctx, s.store, pendingKey(id), func(r *stored[pending]) error {
		if r.revision == 0 || !now().Before(r.value.Expires) {
			return errNoSuchCode
		}
		if r.value.State != statePending {
			return errDecided
		}
		r.value.Owner = who.Owner
		r.value.State = stateDenied
		if d.approve {
			r.value.State, r.value.Family, r.value.Grant = stateApproved, newID(), grant
		}
		return nil
	})
	if err != nil || !d.approve {
		return rec.Display, err
	}
	if rec.MachineID == "" {
		return d.name, nil // its first HELLO says which machine it is
	}
	m, err := s.admit(ctx, who.Owner, rec.MachineID, grant)
	if err != nil {
		return "", err
	}
	return m.Name, nil
}
