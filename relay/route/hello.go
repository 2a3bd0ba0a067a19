package route

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"farhand/wire"
)

// known are the capabilities that this relay grants when they are offered.
var known = wire.Capabilities{
	wire.Cancel,
	wire.DirectoryBrowse, wire.Shell, wire.Files, wire.ComputerUse, wire.LocalLLM, wire.Recording,
	wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO, wire.HardwareI2C, wire.HardwareSPI, wire.HardwarePrinter,
	wire.Transfer,
	wire.Grants, wire.AuditAnchor, wire.Streams, wire.Terminal, wire.LocalLLMExtended, wire.LLMManage, wire.MachineFactsCapability,
	wire.Observe, wire.Machines, wire.SettingsCapability,
	wire.Forward, wire.Privacy,
}

// What HELLO_ACK allows: never less than the device's own limits, so that only
// these count (issue "The relay"; 16 MiB is the largest frame, 86400 s one day).
const (
	ackMaxFileSize    int64   = 16777216
	ackCommandTimeout float64 = 86400
	ackMaxConcurrent  int     = 1024
)

// Patterns and bounds of HELLO's fields, as the AutoGPT platform has them.
var (
	machineIDPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	shimVersionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	versionPattern     = regexp.MustCompile(`^([0-9]{1,9})\.([0-9]{1,9})$`)
)

// isSessionID says whether s may be a session's id in a path: 1 to 128 letters,
// digits and hyphens. It is asked for every request, so it is no pattern.
func isSessionID(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // lower case, for letters
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && s[i] != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

const (
	maxFeatures     = 128 // entries of a feature list, and characters of each
	maxCapabilities = 256 // entries of capabilities; the protocol has about 20
)

// refusal is why a handshake ends: the close code and its JSON reason.
type refusal struct {
	code   int
	reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.code, r.reason) }

// refuse makes a refusal with a JSON reason that fits a close frame.
func refuse(code int, name, hint string) *refusal {
	reason, err := json.Marshal(struct {
		Error string `json:"error"`
		Hint  string `json:"hint,omitempty"`
	}{name, hint})
	if err != nil || len(reason) > maxReason {
		return &refusal{code, fmt.Sprintf(`{"error":%q}`, name)}
	}
	return &refusal{code, string(reason)}
}

func badHello(hint string) *refusal { return refuse(wire.CloseBadHello, "BAD_HELLO", hint) }

func forbidden(hint string) *refusal { return refuse(wire.CloseForbidden, "FORBIDDEN", hint) }

// versionMismatch has the fields that protocol 1.1 documents.
func versionMismatch(theirs, hint string) *refusal {
	reason, _ := json.Marshal(struct {
		Error string `json:"error"`
		Shim  string `json:"shim_max"`
		Ours  string `json:"platform_max"`
		Hint  string `json:"hint"`
	}{"PROTOCOL_VERSION_MISMATCH", cut(theirs, 12), wire.ProtocolVersion, hint})
	return &refusal{wire.CloseVersionMismatch, string(reason)}
}

// otherMajor says whether a frame's version names another major one than ours.
// Most frames name none, and what can't be read counts as none.
func otherMajor(version string) bool {
	if version == "" || strings.HasPrefix(version, "1.") {
		return false
	}
	parts := versionPattern.FindStringSubmatch(version)
	return parts != nil && strings.TrimLeft(parts[1], "0") != "1"
}

// hello is a HELLO that was accepted.
type hello struct {
	wire.Hello
	id         string
	negotiated string // protocol version, 1.minor
	minor      int
}

// rawHello holds the fields of HELLO as leniently as the platform reads them.
type rawHello struct {
	ShimVersion       *string           `json:"shim_version"`
	ProtocolVersion   *string           `json:"protocol_version"`
	MachineID         string            `json:"machine_id"`
	DisplayName       *string           `json:"display_name"`
	Platform          string            `json:"platform"`
	Arch              string            `json:"arch"`
	ScreenResolution  json.RawMessage   `json:"screen_resolution"`
	Capabilities      []string          `json:"capabilities"`
	AllowedRoot       *string           `json:"allowed_root"`
	LocalLLMModels    []string          `json:"local_llm_models"`
	HardwareDevices   []json.RawMessage `json:"hardware_devices"`
	HardwareTruncated bool              `json:"hardware_truncated"`
	BootID            string            `json:"boot_id"`
	ComputerUse       []string          `json:"computer_use_features"`
	ComputerUseCoarse []string          `json:"computer_use_features_coarse"`
	RecordingChannels []string          `json:"recording_channels"`
	RecordingRoutes   []string          `json:"recording_routes"`
}

// parseHello reads the first frame of a device's socket.
func parseHello(frame []byte, channel wire.Channel) (hello, *refusal) {
	if len(frame) > wire.MaxHelloRelay {
		return hello{}, badHello("HELLO over 64 KiB")
	}
	env, err := wire.DecodeEnvelope(frame)
	switch {
	case err != nil:
		return hello{}, badHello("not a HELLO envelope")
	case env.Type != wire.THello:
		return hello{}, badHello("HELLO must come first")
	}
	var raw rawHello
	if wire.Decode(env.Payload, &raw) != nil {
		return hello{}, badHello("payload of the wrong shape")
	}
	version := "1.0"
	if raw.ProtocolVersion != nil {
		version = *raw.ProtocolVersion
	}
	parts := versionPattern.FindStringSubmatch(version)
	if parts == nil {
		return hello{}, badHello("protocol_version")
	}
	if strings.TrimLeft(parts[1], "0") != "1" {
		return hello{}, versionMismatch(version, "upgrade")
	}
	minor, _ := strconv.Atoi(parts[2]) // nine digits fit
	minor = min(minor, 1)
	h := hello{id: env.ID, minor: minor, negotiated: "1." + strconv.Itoa(minor)}
	if field := raw.problem(channel); field != "" {
		return hello{}, badHello(field)
	}
	h.Hello = raw.hello(version)
	if channel == wire.Control {
		switch {
		case minor < 1:
			return hello{}, versionMismatch(version, "control needs 1.1")
		case !h.Capabilities.Has(wire.DirectoryBrowse):
			return hello{}, refuse(wire.CloseVersionMismatch, "CAPABILITY_MISSING", "control needs directory_browse")
		}
	}
	return h, nil
}

// problem names the first field that breaks a rule, or nothing.
func (r *rawHello) problem(channel wire.Channel) string {
	switch {
	case !machineIDPattern.MatchString(r.MachineID):
		return "machine_id"
	case r.DisplayName != nil && (utf8.RuneCountInString(*r.DisplayName) > wire.MaxDisplayName || !wire.Plain(*r.DisplayName)):
		return "display_name"
	case r.Platform != "darwin" && r.Platform != "linux" && r.Platform != "windows" && r.Platform != "wsl2":
		return "platform"
	case r.Arch != "x86_64" && r.Arch != "arm64":
		return "arch"
	case r.ShimVersion != nil && !shimVersionPattern.MatchString(*r.ShimVersion):
		return "shim_version"
	case len(r.BootID) > 128:
		return "boot_id"
	case len(r.Capabilities) > maxCapabilities:
		return "capabilities"
	case !features(r.ComputerUse):
		return "computer_use_features"
	case !features(r.ComputerUseCoarse):
		return "computer_use_features_coarse"
	case !subset(r.RecordingChannels, "floor", "browser", "desktop_ax"):
		return "recording_channels"
	case !subset(r.RecordingRoutes, "extract_then_cloud", "local_vlm", "screenshots_to_cloud"):
		return "recording_routes"
	}
	root := r.AllowedRoot
	switch {
	case channel == wire.Control && root != nil:
		return "allowed_root must be null"
	case channel == wire.Data && (root == nil || strings.TrimSpace(*root) == "" ||
		utf8.RuneCountInString(*root) > wire.MaxAllowedRoot || !wire.Plain(*root)):
		return "allowed_root"
	}
	return ""
}

func features(list []string) bool {
	if len(list) > maxFeatures {
		return false
	}
	for _, s := range list {
		if utf8.RuneCountInString(s) > maxFeatures || strings.TrimSpace(s) != s {
			return false
		}
	}
	return true
}

func subset(list []string, allowed ...string) bool {
	for _, s := range list {
		ok := false
		for _, a := range allowed {
			ok = ok || s == a
		}
		if !ok {
			return false
		}
	}
	return true
}

func (r *rawHello) hello(version string) wire.Hello {
	h := wire.Hello{
		ProtocolVersion: version, MachineID: r.MachineID, Platform: r.Platform, Arch: r.Arch,
		AllowedRoot: r.AllowedRoot, HardwareTruncated: r.HardwareTruncated, BootID: r.BootID,
		Capabilities:   wire.Capabilities{},
		LocalLLMModels: list(r.LocalLLMModels), HardwareDevices: []wire.HardwareDevice{},
		ComputerUse: list(r.ComputerUse), ComputerUseCoarse: list(r.ComputerUseCoarse),
		RecordingChannels: list(r.RecordingChannels), RecordingRoutes: list(r.RecordingRoutes),
	}
	if r.ShimVersion != nil {
		h.ShimVersion = *r.ShimVersion
	}
	if r.DisplayName != nil {
		h.DisplayName = *r.DisplayName
	}
	for _, c := range r.Capabilities {
		if c := wire.Capability(c); !h.Capabilities.Has(c) {
			h.Capabilities = append(h.Capabilities, c)
		}
	}
	for _, raw := range r.HardwareDevices {
		var d wire.HardwareDevice
		if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &d) == nil {
			h.HardwareDevices = append(h.HardwareDevices, d)
		}
	}
	var px []int
	if json.Unmarshal(r.ScreenResolution, &px) == nil && len(px) == 2 {
		h.ScreenResolution = &[2]int{px[0], px[1]}
	}
	return h
}

func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// grantable is what of the offer this relay knows, in the order of the offer.
func grantable(offered wire.Capabilities) wire.Capabilities {
	granted := wire.Capabilities{}
	for _, c := range offered {
		if known.Has(c) {
			granted = append(granted, c)
		}
	}
	return granted
}

// acknowledge makes HELLO_ACK. sessionID is nil on control, connectionID nil on
// data; grants is nil for a device that can't take them.
func (h hello) acknowledge(sessionID, connectionID *string, granted wire.Capabilities, grants *wire.GrantSet) outFrame {
	size, timeout, concurrent := ackMaxFileSize, ackCommandTimeout, ackMaxConcurrent
	return encode(wire.Message{Type: wire.THelloAck, ID: h.id, Payload: wire.HelloAck{
		SessionID: sessionID, ConnectionID: connectionID, ProtocolVersion: h.negotiated,
		GrantedCapabilities: granted, MaxFileSizeBytes: &size, CommandTimeout: &timeout,
		MaxConcurrent: &concurrent, Grants: grants,
	}})
}
