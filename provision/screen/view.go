package screen

import (
	"fmt"
	"strings"
	"time"

	"farhand/provision/request"
)

// View is what there is to show.
type View struct {
	Pairing *request.Pairing // nil: no code waits to be approved
	Status  *request.Status  // nil before the daemon has said anything
	Wifi    request.WifiFacts
	Rescue  *Rescue // nil: no rescue network
	// Problems go with everything else, such as a data partition that can't be
	// written. One sentence each.
	Problems []string
}

// Rescue is the rescue network, or why there is none though there should be.
type Rescue struct {
	SSID       string
	Passphrase string
	URL        string // of its page
	Problem    string // not empty: it doesn't run, and why
}

// Page says what a view says in the order of its weight, for any kind of
// output.
type Page struct {
	QR    string // what the QR code holds; empty: none
	Items []Item
}

// Item is one paragraph of a page.
type Item struct {
	Style Style
	Text  string // printable, without line ends
}

// Style is what an item is to the reader.
type Style int

// The styles.
const (
	Body  Style = iota
	Title       // what the page is about
	Key         // to be typed: an address or a command
	Code        // to be compared: the largest text of the page
	Good        // a state that is as it should be
	Bad         // a state to be acted on
	Small       // details
)

// Compose says what v says. now is for the time that a code is still good.
func Compose(v View, now time.Time) Page {
	var p Page
	switch {
	case v.Pairing != nil:
		p.pairing(*v.Pairing, now)
	case v.Status != nil:
		p.status(v)
	default:
		p.add(Title, "Farhand")
		p.add(Body, "Starting.")
	}
	if v.Rescue != nil {
		p.rescue(*v.Rescue)
	}
	if v.Pairing != nil && v.Status != nil {
		p.network(v)
	}
	for _, problem := range v.Problems {
		p.add(Bad, problem)
	}
	if v.Pairing == nil && v.Status != nil {
		p.details(*v.Status)
	}
	return p
}

func (p *Page) add(style Style, text string) {
	if text = Clean(text); text != "" {
		p.Items = append(p.Items, Item{style, text})
	}
}

func (p *Page) addf(style Style, format string, args ...any) {
	p.add(style, fmt.Sprintf(format, args...))
}

func (p *Page) pairing(c request.Pairing, now time.Time) {
	p.QR = link(c.VerificationURIComplete, c.VerificationURI)
	p.add(Title, "Pair this machine")
	if p.QR != "" {
		p.add(Body, "Scan the code with a phone, or open")
	} else {
		p.add(Body, "Open")
	}
	p.add(Key, c.VerificationURI)
	p.add(Body, "and compare the code there with this one:")
	p.add(Code, c.UserCode)
	p.add(Body, "or, where the farhand command is:")
	p.addf(Key, "farhand approve %s", Clean(c.UserCode))
	if left := c.ExpiresAt.Sub(now); left > 0 {
		p.addf(Small, "The code is good for %s; then a new one comes.", Lasting(left))
	} else {
		p.add(Small, "The code has run out; a new one comes.")
	}
	if c.Name != "" {
		p.addf(Small, "This machine: %s", Clean(c.Name))
	}
	if c.Note != "" {
		p.add(Small, Clean(c.Note))
	}
}

// link is the first of urls that a phone should be sent to.
func link(urls ...string) string {
	for _, u := range urls {
		if strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://") {
			return u
		}
	}
	return ""
}

// status is the head of a page without a code.
func (p *Page) status(v View) {
	s := v.Status
	name := s.Name
	if name == "" {
		name = "Farhand"
	}
	p.add(Title, name)
	switch s.State {
	case "connected", "online":
		p.addf(Good, "Connected to %s", or(host(s.Relay), "its relay"))
	case "starting":
		p.add(Body, "Starting.")
	case "stopping":
		p.add(Body, "Stopping.")
	case "login_needed":
		p.addf(Bad, "Not paired: %s offers no pairing by code. On this machine: farhandd login", or(host(s.Relay), "the platform"))
	case "halted":
		p.addf(Bad, "Told not to connect again. On this machine: farhandd resume")
	default:
		if !p.network(v) {
			p.addf(Body, "Connecting to %s", or(host(s.Relay), "its relay"))
		}
	}
	p.add(Body, s.Detail)
}

// network says what the network lacks, in words a person can act on, and
// whether it lacks anything.
func (p *Page) network(v View) bool {
	s := v.Status
	// While the rescue network runs, its own address is the only one.
	rescue := v.Rescue != nil && v.Rescue.Problem == ""
	if s.State == "connected" || s.State == "online" || len(s.Addresses) > 0 && !rescue {
		return false
	}
	if rescue {
		p.add(Bad, "No network. "+cable+", or give it a Wi-Fi network.")
	} else {
		p.add(Bad, "No network. "+advice(v.Wifi))
	}
	return true
}

const cable = "Plug in a network cable"

func advice(wifi request.WifiFacts) string {
	ssid := fmt.Sprintf("%q", Clean(SSIDText(wifi.SSIDHex)))
	switch wifi.State {
	case request.WifiNoCountry:
		return cable + ". The Wi-Fi may not send before its country is known: flash the card again with a Wi-Fi country."
	case request.WifiBlocked:
		return cable + ". The Wi-Fi is switched off (rfkill)."
	case request.WifiReady, request.WifiOpen:
		return cable + fmt.Sprintf(", or bring the Wi-Fi network %s into reach; its password may be wrong.", ssid)
	case request.WifiOff:
		return cable + ", or flash the card again with the name and password of a Wi-Fi network."
	default:
		return cable + "."
	}
}

func (p *Page) rescue(r Rescue) {
	if r.Problem != "" {
		p.add(Bad, "No set-up Wi-Fi: "+r.Problem)
		return
	}
	if p.QR == "" {
		p.QR = JoinCode(r.SSID, r.Passphrase)
		p.add(Body, "To give it a Wi-Fi network, scan the code with a phone, or join this one:")
	} else {
		p.add(Body, "To give it a Wi-Fi network, join this one:")
	}
	p.add(Key, r.SSID)
	p.add(Body, "with the password")
	p.add(Key, r.Passphrase)
	p.add(Body, "and open")
	p.add(Key, r.URL)
}

// shownDevices is how many devices a page lists.
const shownDevices = 12

func (p *Page) details(s request.Status) {
	if s.MDNSName != "" {
		p.addf(Body, "Name in this network: %s", Clean(s.MDNSName))
	}
	if len(s.Addresses) > 0 {
		p.addf(Body, "Addresses: %s", Clean(strings.Join(s.Addresses, "  ")))
	}
	if s.Wifi != "" {
		p.addf(Small, "Wi-Fi: %s", Clean(s.Wifi))
	}
	switch s.ClockState {
	case "", "synchronised":
	default:
		p.addf(Small, "The clock isn't synchronised yet (%s).", Clean(s.ClockState))
	}
	if len(s.Devices) > 0 {
		p.addf(Body, "Devices: %d", len(s.Devices))
	}
	for i, d := range s.Devices {
		if i == shownDevices {
			p.addf(Small, "and %d more", len(s.Devices)-i)
			break
		}
		p.add(Small, strings.TrimSpace(d.ID+"  "+d.Desc))
	}
}

// host is the part of a relay's URL that a person recognises.
func host(url string) string {
	_, rest, found := strings.Cut(url, "://")
	if !found {
		rest = url
	}
	rest, _, _ = strings.Cut(rest, "/")
	return rest
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Lasting tells a person how long something still lasts.
func Lasting(d time.Duration) string {
	switch n := int(d.Round(time.Minute) / time.Minute); {
	case n < 1:
		return "less than a minute"
	case n == 1:
		return "1 minute"
	case n <= 120:
		return fmt.Sprintf("%d minutes", n)
	default:
		return fmt.Sprintf("%d hours", n/60)
	}
}
