package wire

// SettingsGet is SETTINGS_GET.payload; the answer is SETTINGS.
type SettingsGet struct {
	Caller
}

// SettingsSet is SETTINGS_SET.payload; the answer is SETTINGS as they are then.
type SettingsSet struct {
	Caller
	Change SettingsChange `json:"change"`
}

// Caller is who asks for what the owner alone may have. Both are opaque ids, the
// same as in GrantSet.
type Caller struct {
	Owner string `json:"owner"`
	// Holder is the login or token that asks, and OwnLogin whether that is the
	// owner's own login. The device refuses anything else.
	Holder   string `json:"holder"`
	OwnLogin bool   `json:"own_login"`
}

// Settings are those of an appliance that its owner may change later. No secret
// is among them.
type Settings struct {
	Hostname string       `json:"hostname"` // one DNS label, as it is used
	Name     string       `json:"name"`     // as its owner sees it; empty: the host name
	Timezone string       `json:"timezone"` // a name of the tz database; empty: UTC
	Wifi     WifiSettings `json:"wifi"`
	SSH      SSHSettings  `json:"ssh"`
}

// WifiSettings are what the radio was told.
type WifiSettings struct {
	Country  string        `json:"country"` // ISO 3166-1 alpha-2; empty: the radio may not send
	Networks []WifiNetwork `json:"networks"`
	// Rescue is whether there is a rescue network also after the first pairing.
	Rescue bool `json:"rescue"`
	// Pending says that the last change of Country or Networks counts for good
	// only once the relay is reached with it. LastChange is what became of the
	// last one: one of the Wifi constants, or empty if there was none.
	Pending    bool   `json:"pending"`
	LastChange string `json:"last_change,omitempty"`
}

// What became of a change of networks.
const (
	WifiKept       = "kept"        // the relay was reached
	WifiRolledBack = "rolled_back" // it wasn't, and the ones of before are back
)

// WifiNetwork is one network that the machine joins.
type WifiNetwork struct {
	SSID     string `json:"ssid"` // as it is if it is printable UTF-8, else 0x and its bytes in hex
	Hidden   bool   `json:"hidden"`
	Security string `json:"security"` // wpa or open
}

// SSHSettings are whether and how one may log in over the network.
type SSHSettings struct {
	Enabled bool     `json:"enabled"`
	User    string   `json:"user"` // who may log in; empty: the card named nobody
	Keys    []SSHKey `json:"keys"`
}

// SSHKey is one public key that may log in.
type SSHKey struct {
	Type        string `json:"type"`        // ssh-ed25519 and the like
	Fingerprint string `json:"fingerprint"` // SHA256: and base64, as ssh-keygen -l prints it
	Comment     string `json:"comment"`
}

// SettingsChange is what is to be different. What is nil or empty stays as it is.
// Removals come before additions, and nothing is changed if anything is wrong.
type SettingsChange struct {
	Hostname    *string   `json:"hostname,omitempty"` // empty: one made of the board's serial number
	Name        *string   `json:"name,omitempty"`     // empty: the host name
	Timezone    *string   `json:"timezone,omitempty"` // empty: UTC
	WifiCountry *string   `json:"wifi_country,omitempty"`
	WifiRemove  []string  `json:"wifi_remove,omitempty"` // SSIDs as WifiNetwork has them
	WifiAdd     []NewWifi `json:"wifi_add,omitempty"`    // replaces one of the same SSID
	WifiRescue  *bool     `json:"wifi_rescue,omitempty"`
	SSHEnabled  *bool     `json:"ssh_enabled,omitempty"`
	SSHRemove   []string  `json:"ssh_remove,omitempty"` // fingerprints
	SSHAdd      []string  `json:"ssh_add,omitempty"`    // lines of authorized_keys
}

// NewWifi is a network to be joined from now on.
type NewWifi struct {
	SSID   string `json:"ssid"` // text, or 0x and its bytes in hex
	Hidden bool   `json:"hidden,omitempty"`
	// Password has 8 to 63 characters, or is the key itself in 64 hex digits;
	// empty: the network is open.
	Password string `json:"password,omitempty"`
}

// Bounds of one change.
const (
	MaxWifiNetworks = 16   // also of those there are
	MaxSSHKeys      = 32   // likewise
	MaxSSHKey       = 4096 // bytes of a line
)

// Networks says whether c changes what the machine can be reached by.
func (c SettingsChange) Networks() bool {
	return c.WifiCountry != nil || len(c.WifiAdd) > 0 || len(c.WifiRemove) > 0
}

// Fields are the names of what c changes, for records, which must not have the
// values: some are secrets.
func (c SettingsChange) Fields() []string {
	fields := []string{}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"hostname", c.Hostname != nil}, {"name", c.Name != nil}, {"timezone", c.Timezone != nil},
		{"wifi_country", c.WifiCountry != nil}, {"wifi_remove", len(c.WifiRemove) > 0}, {"wifi_add", len(c.WifiAdd) > 0},
		{"wifi_rescue", c.WifiRescue != nil}, {"ssh_enabled", c.SSHEnabled != nil},
		{"ssh_remove", len(c.SSHRemove) > 0}, {"ssh_add", len(c.SSHAdd) > 0},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}
