package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"farhand/link"
	"farhand/wire"
)

// accepted is what a good HELLO_ACK says.
type accepted struct {
	version      string // negotiated
	connectionID string // control only
	granted      wire.Capabilities
	limits       Limits
	grants       wire.GrantSet
}

// refusal is a HELLO_ACK that must not be worked with: the socket is closed with
// code and reason. Final ones are not tried again.
type refusal struct {
	code   int
	reason string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("handshake refused (%d): %s", r.code, r.reason)
}

// revoked is a SESSION_REVOKED frame.
type revoked struct{ wire.SessionRevoked }

func (r *revoked) Error() string { return "session revoked: " + r.Reason }

// revokedBy is what a SESSION_REVOKED says; its reason is a courtesy.
func revokedBy(e wire.Envelope) *revoked {
	r := &revoked{}
	_ = wire.Decode(e.Payload, &r.SessionRevoked)
	return r
}

// handshake sends HELLO and waits for HELLO_ACK. A *refusal closes the socket
// for good, a *revoked was told by frame; any other error may be tried again.
func (s *Shim) handshake(ctx context.Context, conn *link.Conn, kind wire.Channel, sessionID string, hello wire.Message, offered wire.Capabilities) (accepted, error) {
	conn.SetReadDeadline(time.Now().Add(wire.HandshakeTimeout))
	if err := conn.Send(ctx, link.Urgent, hello); err != nil {
		return accepted{}, err
	}
	frame, err := conn.Read()
	if err != nil {
		return accepted{}, err
	}
	conn.SetReadDeadline(time.Time{})
	return s.readAck(frame, kind, sessionID, hello.ID, offered)
}

// readAck checks HELLO_ACK in the order of the reference shim.
func (s *Shim) readAck(frame []byte, kind wire.Channel, sessionID, helloID string, offered wire.Capabilities) (accepted, error) {
	e, err := wire.DecodeEnvelope(frame)
	if e.Type == wire.TSessionRevoked {
		return accepted{}, revokedBy(e)
	}
	var ack wire.HelloAck
	if err != nil || e.Type != wire.THelloAck {
		return accepted{}, errors.New("first frame isn't HELLO_ACK")
	}
	if err := wire.Decode(e.Payload, &ack); err != nil {
		return accepted{}, fmt.Errorf("HELLO_ACK: %w", err)
	}
	if ack.GrantedCapabilities == nil {
		return accepted{}, errors.New("HELLO_ACK without granted_capabilities")
	}
	a := accepted{granted: ack.GrantedCapabilities}
	if a.limits, err = s.cfg.Limits.lowered(ack); err != nil {
		return accepted{}, err
	}

	acked := ""
	if ack.SessionID != nil {
		acked = *ack.SessionID
	}
	switch {
	case e.ID != helloID:
		return accepted{}, &refusal{wire.CloseBadHello, "HELLO_ACK has another id"}
	case acked != sessionID && kind == wire.Data:
		return accepted{}, &refusal{wire.CloseForbidden, "HELLO_ACK is for another session"}
	case acked != "" && kind == wire.Control:
		return accepted{}, &refusal{wire.CloseForbidden, "HELLO_ACK on control names a session"}
	}
	for _, c := range a.granted {
		if !offered.Has(c) {
			return accepted{}, &refusal{wire.CloseBadHello, "a capability was granted that was not offered"}
		}
	}
	if ack.ProtocolVersion == "" {
		ack.ProtocolVersion = wire.ProtocolVersion
	}
	minor, ok := negotiate(ack.ProtocolVersion)
	if !ok {
		return accepted{}, versionRefusal(ack.ProtocolVersion)
	}
	a.version = "1." + strconv.Itoa(minor)
	if kind == wire.Control {
		switch {
		case minor < 1:
			return accepted{}, versionRefusal(ack.ProtocolVersion)
		case !a.granted.Has(wire.DirectoryBrowse):
			return accepted{}, &refusal{wire.CloseVersionMismatch, "directory_browse was not granted"}
		case ack.ConnectionID == nil || *ack.ConnectionID == "":
			return accepted{}, &refusal{wire.CloseVersionMismatch, "HELLO_ACK without connection_id"}
		}
		a.connectionID = *ack.ConnectionID
	}
	if ack.Grants != nil && a.granted.Has(wire.Grants) {
		a.grants = *ack.Grants
	}
	return a, nil
}

// lowered is the lower of our limits and the platform's, with the protocol's
// defaults for those that it omits.
func (l Limits) lowered(ack wire.HelloAck) (Limits, error) {
	slots, size, timeout := wire.DefaultMaxConcurrent, int64(wire.DefaultMaxFileSize), wire.DefaultCommandTimeout.Seconds()
	if ack.MaxConcurrent != nil {
		slots = *ack.MaxConcurrent
	}
	if ack.MaxFileSizeBytes != nil {
		size = *ack.MaxFileSizeBytes
	}
	if ack.CommandTimeout != nil {
		timeout = *ack.CommandTimeout
	}
	if slots <= 0 || size <= 0 || timeout <= 0 {
		return l, errors.New("HELLO_ACK: limits must be positive")
	}
	l.MaxConcurrent = min(l.MaxConcurrent, slots)
	l.MaxFileSize = min(l.MaxFileSize, size)
	if timeout < l.CommandTimeout.Seconds() { // compared as numbers: a huge one would overflow
		l.CommandTimeout = max(time.Millisecond, time.Duration(timeout*float64(time.Second)))
	}
	return l, nil
}

// negotiate is the minor version that both sides speak. False means another
// major version, or no version at all.
func negotiate(theirs string) (int, bool) {
	major, minor, ok := parseVersion(theirs)
	if !ok || major != 1 {
		return 0, false
	}
	_, ours, _ := parseVersion(wire.ProtocolVersion)
	return min(minor, ours), true
}

// parseVersion reads major.minor.
func parseVersion(v string) (major, minor int, ok bool) {
	a, b, cut := strings.Cut(v, ".")
	if !cut {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	return major, minor, err1 == nil && err2 == nil && major >= 0 && minor >= 0 &&
		!strings.ContainsAny(v, "+-")
}

// versionRefusal has the reason that the protocol asks for, short enough for a
// close frame.
func versionRefusal(theirs string) *refusal {
	if _, _, ok := parseVersion(theirs); !ok || len(theirs) > 12 {
		theirs = "?"
	}
	reason, err := json.Marshal(struct {
		Error string `json:"error"`
		Ours  string `json:"shim_max"`
		Their string `json:"platform_max"`
		Hint  string `json:"hint"`
	}{"PROTOCOL_VERSION_MISMATCH", wire.ProtocolVersion, theirs, "update"})
	if err != nil {
		reason = []byte(`{"error":"PROTOCOL_VERSION_MISMATCH"}`)
	}
	return &refusal{wire.CloseVersionMismatch, string(reason)}
}
