package preseed

// Settings are what the files of a card ask for. A zero field was not asked for.
// They are kept as JSON with the system's own data, secrets included.
type Settings struct {
	Hostname   string     `json:"hostname,omitempty"` // one DNS label
	User       *User      `json:"user,omitempty"`
	SSH        SSH        `json:"ssh"`
	Wifi       *Wifi      `json:"wifi,omitempty"`
	MoreWifi   []Wifi     `json:"more_wifi,omitzero"` // what the owner added beside it, later
	Country    string     `json:"country,omitempty"`  // ISO 3166-1 alpha-2; also without a network
	Keymap     string     `json:"keymap,omitempty"`
	Timezone   string     `json:"timezone,omitempty"` // a name of the tz database
	Interfaces Interfaces `json:"interfaces"`
	Farhand    Farhand    `json:"farhand"`
}

// User is the person who may log in.
type User struct {
	Name string `json:"name"`
	// PasswordHash is in the form of crypt(5); empty: no password works.
	PasswordHash     string   `json:"password_hash,omitempty"`
	Groups           []string `json:"groups,omitzero"`
	PasswordlessSudo bool     `json:"passwordless_sudo,omitempty"`
}

// SSH is whether and how one may log in over the network.
type SSH struct {
	Enabled        bool     `json:"enabled,omitempty"`
	PasswordLogin  bool     `json:"password_login,omitempty"`
	AuthorizedKeys []string `json:"authorized_keys,omitzero"` // lines of authorized_keys
}

// Wifi is one network.
type Wifi struct {
	SSID   []byte `json:"ssid"` // 1 to 32 bytes of any kind (IEEE 802.11, 9.4.2.2)
	Hidden bool   `json:"hidden,omitempty"`
	// Passphrase has 8 to 63 characters; PSK is the 32-byte key in 64 hex
	// digits. At most one of them is set; a network with neither is open.
	Passphrase string `json:"passphrase,omitempty"`
	PSK        string `json:"psk,omitempty"`
}

// Interfaces are the header's buses as rpi-preseed.toml names them; nil: not
// asked for.
type Interfaces struct {
	I2C     *bool  `json:"i2c,omitempty"`
	SPI     *bool  `json:"spi,omitempty"`
	OneWire *bool  `json:"onewire,omitempty"`
	Serial  string `json:"serial,omitempty"` // one of the Serial constants
}

// What rpi-preseed.toml may say of the header's serial port.
const (
	SerialDefault         = "default"
	SerialConsole         = "console"
	SerialHardware        = "hardware"
	SerialConsoleHardware = "console_hardware"
)

// Farhand is farhand.toml. An empty list isn't the same as none.
type Farhand struct {
	Relay    string `json:"relay,omitempty"`     // https://host[:port]
	CASHA256 string `json:"ca_sha256,omitempty"` // lower-case hex SHA-256 of the DER of the relay's CA
	ClaimKey string `json:"claim_key,omitempty"` // redeemed once; without it the screen shows a code
	Name     string `json:"name,omitempty"`      // as shown to the owner
	// Roots are absolute directories; nil: /data/work.
	Roots []string `json:"roots,omitzero"`
	// Capabilities narrow what the daemon offers; nil: all that it has.
	Capabilities []string `json:"capabilities,omitzero"`
	Shell        bool     `json:"shell,omitempty"`
	// Private is what never leaves the machine, as the daemon's privacy.private has
	// it; what an owner wanted and nobody understood makes it everything.
	Private []string `json:"private,omitzero"`
	// AnswerChars bounds what the local model may say of it; 0: as the daemon has it.
	AnswerChars int  `json:"answer_chars,omitempty"`
	Release     bool `json:"release,omitempty"`
	// ForwardAllow are the targets HOST:PORT that connections may be forwarded to.
	ForwardAllow []string `json:"forward_allow,omitzero"`
	// OperatorSudo lets commands become root.
	OperatorSudo bool `json:"operator_sudo,omitempty"`
	// WifiRescue keeps the rescue network available after the first pairing.
	WifiRescue bool `json:"wifi_rescue,omitempty"`
	// RescuePassphrase is the rescue network's, 12 characters.
	RescuePassphrase string `json:"rescue_passphrase,omitempty"`
	// Buses are the header's buses by the names of package hardware.
	Buses map[string]bool `json:"buses,omitzero"`
}

// Item is what became of one setting.
type Item struct {
	Item    string `json:"item"` // file and key
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// Outcomes, as in package request.
const (
	Applied = "applied"
	Changed = "changed" // applied, but not to the letter
	Refused = "refused" // wrong
	Ignored = "ignored" // this image has no such thing
	Removed = "removed" // a file that doesn't belong on the card
)

// Names of the files on the first partition.
const (
	PreseedFile  = "rpi-preseed.toml"
	FarhandFile  = "farhand.toml"
	FirstrunFile = "firstrun.sh"
)
