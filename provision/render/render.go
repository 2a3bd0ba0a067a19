package render

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"farhand/provision/preseed"
)

// Users and groups of the image, with their fixed numbers.
const (
	FarhandID  = 900  // the daemon's user and group
	OperatorID = 901  // who runs commands
	WorkID     = 902  // the group of both
	PersonID   = 1000 // who logs in
)

// Dir is where most of what is rendered lies.
const Dir = "/run/farhand"

// Input is what there is to render, and what the machine is like.
type Input struct {
	Settings preseed.Settings
	Serial   string // the board's serial number; may be empty
	// MachineID is the system's; it is only used hashed.
	MachineID string
	StateDir  string // the daemon's
	// ClaimKeyFile holds the claim key; empty: there is none.
	ClaimKeyFile string
	// Groups are the image's, by name.
	Groups []string
	// Users are the image's: nobody can be called as one of them.
	Users []string
	// Zone says whether the image knows the time zone.
	Zone func(name string) bool
}

// Result is what comes of an Input.
type Result struct {
	Files    []File
	Hostname string
	// Person is who may log in; nil: nobody.
	Person *preseed.User
	// SSH says whether the server for logging in is to run.
	SSH bool
	// Notes are the settings that turned out not to be possible here.
	Notes []preseed.Item
}

// All is everything that an image's system goes by.
func All(in Input) Result {
	r := Result{Hostname: Hostname(in)}
	r.add(File{Path: Dir + "/hostname", Data: []byte(r.Hostname + "\n"), Mode: 0o644})
	r.zone(in)
	r.network()
	r.add(Wifi(in.Settings)...)
	r.person(in)
	r.sudo(in)
	r.daemon(in)
	return r
}

func (r *Result) add(files ...File) { r.Files = append(r.Files, files...) }

func (r *Result) note(item, why string) {
	r.Notes = append(r.Notes, preseed.Item{Item: item, Outcome: preseed.Refused, Why: why})
}

// suffixLength is how much of a serial number tells the boards of a house apart.
const suffixLength = 6

// Hostname is the machine's name: what was asked for, or one that ends with a
// piece of the board's serial number (field case 81: names that are the same on
// every board fight in a network).
func Hostname(in Input) string {
	if in.Settings.Hostname != "" {
		return in.Settings.Hostname
	}
	return "farhand-" + Suffix(in.Serial, in.MachineID)
}

// Suffix tells one board from another in a name.
func Suffix(serial, machineID string) string {
	s := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' {
			return c
		}
		return -1
	}, strings.ToLower(serial))
	if strings.Trim(s, "0") == "" { // none, or one that every such board has
		sum := sha256.Sum256([]byte("farhand-hostname " + machineID))
		s = hex.EncodeToString(sum[:])
	}
	return s[max(0, len(s)-suffixLength):]
}

// zone links /run/farhand/localtime, where the image's /etc/localtime leads.
func (r *Result) zone(in Input) {
	name := in.Settings.Timezone
	if name != "" && !in.Zone(name) {
		r.note("timezone", "this image knows no such time zone; it is UTC")
		name = ""
	}
	if name == "" {
		name = "Etc/UTC"
	}
	r.add(File{Path: Dir + "/localtime", Link: "/usr/share/zoneinfo/" + name})
}

// sudo is what the image's sudoers file includes.
func (r *Result) sudo(in Input) {
	var rules strings.Builder
	if in.Settings.Farhand.OperatorSudo {
		rules.WriteString("operator ALL=(ALL:ALL) NOPASSWD: ALL\n")
	}
	if p := r.Person; p != nil && p.PasswordlessSudo {
		rules.WriteString(p.Name + " ALL=(ALL:ALL) NOPASSWD: ALL\n")
	}
	r.add(File{Path: Dir + "/sudoers.d/farhand", Data: []byte("# From the settings of the card.\n" + rules.String()), Mode: 0o440})
}

func has(list []string, s string) bool { return slices.Contains(list, s) }
