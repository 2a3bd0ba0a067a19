package rescue

import (
	"context"
	"net/netip"
)

// Address is the machine's own in its rescue network, and Prefix that network.
// 10.42.0.1 is what others use for the purpose too, so it is rarely a network
// that the person's own router has.
func Address() netip.Addr { return netip.AddrFrom4([4]byte{10, 42, 0, 1}) }

// Prefix is the rescue network.
func Prefix() netip.Prefix { return netip.PrefixFrom(Address(), 24) }

// URL is the rescue network's page.
func URL() string { return "http://" + Address().String() + "/" }

// AccessPoint is the rescue network.
type AccessPoint struct {
	SSID       string // 1 to 32 bytes
	Passphrase string // 8 to 63 characters, of WPA2
}

// Network is one that the radio hears.
type Network struct {
	SSID   []byte // any 1 to 32 bytes
	Signal int    // dBm
	Open   bool   // without encryption
}

// Radio is a Wi-Fi device that is either a station, which joins the networks that
// it knows by itself, or an access point. Only one call is made at a time, and
// each ends soon after its context.
type Radio interface {
	// Scan lists the networks around, the strongest first. The radio is a
	// station then.
	Scan(context.Context) ([]Network, error)
	// Raise makes the radio an access point, and returns when it can be joined
	// and the machine has its Address there. It replaces one that runs.
	Raise(context.Context, AccessPoint) error
	// Lower makes the radio a station again. It is no error if it is one.
	Lower(context.Context) error
	// Joined says whether the station is in a network.
	Joined(context.Context) (bool, error)
}

// Portal is the page, and what makes a phone find it.
type Portal interface {
	// Open begins to answer at Address.
	Open(context.Context, Visit) error
	// Close ends that. It is no error if it isn't open.
	Close() error
}

// Visit is what the page tells.
type Visit struct {
	Networks []Network
	Note     string // what became of the last attempt; may be empty
}

// Phase is what a Machine is doing.
type Phase string

// The phases.
const (
	Idle     Phase = "idle"     // nothing to do: there is a network, or no rescue is allowed
	Waiting  Phase = "waiting"  // no network, but not for long enough yet
	Raising  Phase = "raising"  // about to be an access point
	Up       Phase = "up"       // can be joined
	Retrying Phase = "retrying" // a station for a while, since a known network may be back
	Trying   Phase = "trying"   // a station, to join the network that was entered
	Failed   Phase = "failed"   // can't be an access point; tried again later
	Absent   Phase = "absent"   // there is no radio; looked for again later
)

// State is what there is to show.
type State struct {
	Phase   Phase
	Problem string // of Failed and Absent: why, in words a person can act on
	Note    string // what became of the last attempt to join a network
}
