package wire

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Hello is HELLO.payload. List fields are never null on the wire: make them
// empty, not nil.
type Hello struct {
	ShimVersion       string           `json:"shim_version"`
	ProtocolVersion   string           `json:"protocol_version"`
	MachineID         string           `json:"machine_id"`
	DisplayName       string           `json:"display_name,omitempty"`
	Platform          string           `json:"platform"` // darwin, linux, windows, wsl2
	Arch              string           `json:"arch"`     // x86_64, arm64
	ScreenResolution  *[2]int          `json:"screen_resolution"`
	Capabilities      Capabilities     `json:"capabilities"`
	AllowedRoot       *string          `json:"allowed_root"` // null on the control socket
	LocalLLMModels    []string         `json:"local_llm_models"`
	HardwareDevices   []HardwareDevice `json:"hardware_devices"`
	HardwareTruncated bool             `json:"hardware_truncated,omitempty"`
	BootID            string           `json:"boot_id,omitempty"` // changes with every start of the daemon
	ComputerUse       []string         `json:"computer_use_features"`
	ComputerUseCoarse []string         `json:"computer_use_features_coarse"`
	RecordingChannels []string         `json:"recording_channels"`
	RecordingRoutes   []string         `json:"recording_routes"`
}

// HelloAck is HELLO_ACK.payload.
type HelloAck struct {
	SessionID           *string      `json:"session_id"`
	ConnectionID        *string      `json:"connection_id,omitempty"` // control only
	ProtocolVersion     string       `json:"protocol_version,omitempty"`
	GrantedCapabilities Capabilities `json:"granted_capabilities"`
	MaxFileSizeBytes    *int64       `json:"max_file_size_bytes,omitempty"`
	CommandTimeout      *float64     `json:"command_timeout_seconds,omitempty"` // seconds
	MaxConcurrent       *int         `json:"max_concurrent,omitempty"`
	Grants              *GrantSet    `json:"grants,omitempty"` // with capability grants
}

// GrantSet is what the owner, the approval, the operator's token and the
// session allow, each as a ceiling of its own; the device takes the meet.
type GrantSet struct {
	Owner    string   `json:"owner,omitempty"`  // opaque id
	Holder   string   `json:"holder,omitempty"` // opaque id of the operator login or token
	Approval *Ceiling `json:"approval,omitempty"`
	Token    *Ceiling `json:"token"`
	Session  *Ceiling `json:"session"`
}

// Ceiling is one upper bound. A nil list (an absent key) allows all, an empty
// one nothing.
type Ceiling struct {
	Capabilities *[]Capability  `json:"capabilities,omitempty"`
	Devices      *[]DeviceGrant `json:"devices,omitempty"`
	Roots        *[]string      `json:"roots,omitempty"`
}

// UnmarshalJSON takes a list that is null for an empty one, which allows
// nothing: that is what a nil slice behind a pointer is encoded as, and a
// ceiling must never be lifted by the difference.
func (c *Ceiling) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	type plain Ceiling
	if err := json.Unmarshal(b, (*plain)(c)); err != nil {
		return err
	}
	return Fields(b, func(key string, raw []byte) error {
		if string(raw) != "null" {
			return nil
		}
		switch key {
		case "capabilities":
			c.Capabilities = &[]Capability{}
		case "devices":
			c.Devices = &[]DeviceGrant{}
		case "roots":
			c.Roots = &[]string{}
		}
		return nil
	})
}

// DeviceGrant allows the devices whose canonical id matches Pattern (a Python
// fnmatch glob), all their lines and operations unless those are named, by such
// globs too.
type DeviceGrant struct {
	Pattern string    `json:"pattern"`
	Lines   *[]string `json:"lines,omitempty"`
	Ops     *[]string `json:"ops,omitempty"`
}

// ParseDeviceGrant reads a grant as people write it: PATTERN, and after it what
// of the devices is allowed, all else not: PATTERN;lines=17,GPIO2?;ops=GPIO_*.
func ParseDeviceGrant(s string) (DeviceGrant, error) {
	pattern, rest, bounded := strings.Cut(s, ";")
	g := DeviceGrant{Pattern: strings.TrimSpace(pattern)}
	if g.Pattern == "" {
		return g, fmt.Errorf("%q has no PATTERN", s)
	}
	for bounded {
		var part string
		part, rest, bounded = strings.Cut(rest, ";")
		name, list, _ := strings.Cut(strings.TrimSpace(part), "=")
		items := []string{}
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		switch name {
		case "lines":
			g.Lines = &items
		case "ops":
			for i := range items {
				items[i] = strings.ToUpper(items[i])
			}
			g.Ops = &items
		default:
			return g, fmt.Errorf("%q is neither ;lines=… nor ;ops=…", part)
		}
	}
	return g, nil
}

// UnmarshalJSON takes a list that is null for an empty one, as that of Ceiling
// does.
func (g *DeviceGrant) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	type plain DeviceGrant
	if err := json.Unmarshal(b, (*plain)(g)); err != nil {
		return err
	}
	return Fields(b, func(key string, raw []byte) error {
		if string(raw) != "null" {
			return nil
		}
		switch key {
		case "lines":
			g.Lines = &[]string{}
		case "ops":
			g.Ops = &[]string{}
		}
		return nil
	})
}

// GrantsUpdate is GRANTS_UPDATE.payload; the answer is ACK, sent after the new
// grants took effect.
type GrantsUpdate struct {
	Grants GrantSet `json:"grants"`
}

// Status is STATUS.payload.
type Status struct {
	InFlight      int     `json:"in_flight"`
	MaxConcurrent int     `json:"max_concurrent"`
	QueueDepth    int     `json:"queue_depth"`
	AuditLogBytes int64   `json:"audit_log_bytes"`
	UptimeSeconds float64 `json:"uptime_seconds"`
	AuditAnchor   *Anchor `json:"audit_anchor,omitempty"` // with capability audit_anchor

	Facts *MachineFacts `json:"facts,omitempty"` // with capability machine_facts, on control
}

// Anchor is the head of the audit chain.
type Anchor struct {
	Seq  int64  `json:"seq"`
	HMAC string `json:"hmac"`
}

// AuditVerifyRequest is AUDIT_VERIFY_REQUEST.payload.
type AuditVerifyRequest struct{}

// AuditVerifyResponse is AUDIT_VERIFY_RESPONSE.payload.
type AuditVerifyResponse struct {
	OK       bool     `json:"ok"`
	Seq      int64    `json:"seq"`
	HMAC     string   `json:"hmac"`
	Problems []string `json:"problems"`
}

// SessionRevoked is SESSION_REVOKED.payload.
type SessionRevoked struct {
	Reason           string  `json:"reason"`
	NewShimMachineID *string `json:"new_shim_machine_id,omitempty"`
}

// Ack is ACK.payload.
type Ack struct {
	OK           bool   `json:"ok"`
	Handle       string `json:"handle,omitempty"`        // GPIO_CONFIGURE
	BytesWritten *int   `json:"bytes_written,omitempty"` // SERIAL_WRITE
}

// Empty is the payload of PING and PONG.
type Empty struct{}

// DirectoryListRequest is DIRECTORY_LIST_REQUEST.payload. All null starts a browse.
type DirectoryListRequest struct {
	BrowseID     *string `json:"browse_id,omitempty"`
	DirectoryRef *string `json:"directory_ref,omitempty"`
	Cursor       *string `json:"cursor,omitempty"`
}

// DirectoryEntry is one directory as the browser shows it.
type DirectoryEntry struct {
	DirectoryRef string `json:"directory_ref"`
	Name         string `json:"name"`
	Path         string `json:"path"` // canonical, absolute
}

// DirectoryListResponse is DIRECTORY_LIST_RESPONSE.payload.
type DirectoryListResponse struct {
	BrowseID   string           `json:"browse_id"`
	Current    *DirectoryEntry  `json:"current"`
	ParentRef  *string          `json:"parent_ref"`
	Entries    []DirectoryEntry `json:"entries"`
	NextCursor *string          `json:"next_cursor"`
	Truncated  bool             `json:"truncated"`
	ExpiresAt  float64          `json:"expires_at"` // seconds since the epoch
}

// AttachSession is ATTACH_SESSION.payload.
type AttachSession struct {
	SessionID            string  `json:"session_id"`
	BrowseID             string  `json:"browse_id"`
	DirectoryRef         string  `json:"directory_ref"`
	ExpectedConnectionID *string `json:"expected_connection_id,omitempty"` // for the platform's own race detection
}

// SessionBinding is the payload of SESSION_ATTACHED and SESSION_RESTORED and,
// without the grant, of SESSION_ACTIVATED.
type SessionBinding struct {
	SessionID   string `json:"session_id"`
	AllowedRoot string `json:"allowed_root"`
	Fingerprint string `json:"fingerprint"` // 64 lower-case hex digits
	Revision    int    `json:"revision"`
	RootGrant   string `json:"root_grant,omitempty"`
}

// ActivateSession is ACTIVATE_SESSION.payload.
type ActivateSession struct {
	SessionID string `json:"session_id"`
	Revision  int    `json:"revision"`
}

// RestoreSession is RESTORE_SESSION.payload.
type RestoreSession struct {
	SessionID string `json:"session_id"`
	RootGrant string `json:"root_grant"`
}

// DetachSession is DETACH_SESSION.payload.
type DetachSession struct {
	SessionID string `json:"session_id"`
}
