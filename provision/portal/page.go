package portal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/provision/rescue"
)

// style is all there is to load. Large enough to be used with a thumb.
const style = `body{font:18px/1.5 sans-serif;max-width:28em;margin:0 auto;padding:1em;color:#141820}
h1{font-size:1.3em}label{display:block;margin:1em 0 .2em}
input,select,button{font:inherit;width:100%;box-sizing:border-box;padding:.5em}
input[type=checkbox]{width:auto}button{margin-top:1.5em;background:#004f80;color:#fff;border:0}
.problem{color:#9c4a00;font-weight:bold}small{color:#5a6370}`

// styleHash is how the security policy permits style and nothing else.
func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// maxListed is how many networks the page lists.
const maxListed = 40

// formPage is the page with the form. html/template would escape by itself, but
// would make the daemon's binary a tenth larger: every text from outside goes
// through esc.
type formPage struct {
	Name, Country, Problem, Note, Token string
	Networks                            []rescue.Network
}

func (f formPage) html() string {
	var b strings.Builder
	head(&b, f.Name)
	b.WriteString("<h1>" + esc(title(f.Name)) + "</h1>\n")
	if f.Problem != "" {
		b.WriteString(`<p class="problem">` + esc(f.Problem) + "</p>\n")
	} else if f.Note != "" {
		b.WriteString(`<p class="problem">` + esc(f.Note) + "</p>\n")
	}
	b.WriteString(`<form method="post" action="/" autocomplete="off">
<input type="hidden" name="token" value="` + esc(f.Token) + `">
<label for="network">Network</label>
<select id="network" name="network">
`)
	for _, n := range listed(f.Networks) {
		open := ""
		if n.Open {
			open = " (open)"
		}
		fmt.Fprintf(&b, "<option value=\"%s\">%s%s</option>\n", hex.EncodeToString(n.SSID), esc(label(n.SSID)), open)
	}
	b.WriteString(`<option value="">another one:</option>
</select>
<label for="other">Name of another network <small>(instead of one of the list)</small></label>
<input id="other" name="other" maxlength="32" autocapitalize="none" autocorrect="off" spellcheck="false">
<label><input type="checkbox" name="hidden" value="1"> it hides its name</label>
<label for="password">Password <small>(empty for an open network)</small></label>
<input id="password" name="password" type="password" maxlength="64">
<label for="country">Country <small>(two letters, as DE, GB or US: it decides on which channels the radio may send)</small></label>
<input id="country" name="country" required minlength="2" maxlength="2" pattern="[A-Za-z]{2}" autocapitalize="characters" value="` + esc(f.Country) + `">
<button>Join this network</button>
</form>
`)
	b.WriteString(tail)
	return b.String()
}

// donePage tells what happens next.
type donePage struct {
	Name string
	SSID []byte
}

func (d donePage) html() string {
	var b strings.Builder
	head(&b, d.Name)
	b.WriteString("<h1>" + esc(title(d.Name)) + "</h1>\n<p>The machine now leaves this Wi-Fi and joins <b>" + esc(label(d.SSID)) + `</b>. That takes up to a minute.</p>
<p>If it works, this Wi-Fi doesn't come back, and the machine shows on its screen and its serial console how it goes on.</p>
<p>If it doesn't, this Wi-Fi comes back after a minute: join it again and open this page to see why.</p>
`)
	b.WriteString(tail)
	return b.String()
}

func head(b *strings.Builder, name string) {
	b.WriteString(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>` + esc(title(name)) + "</title><style>" + style + "</style></head><body>\n")
}

const tail = "</body></html>\n"

func title(name string) string {
	if name == "" {
		return "Wi-Fi for this machine"
	}
	return "Wi-Fi for " + name
}

// listed are the networks that the page offers: no name twice, and none that
// hides.
func listed(all []rescue.Network) []rescue.Network {
	seen := make(map[string]bool)
	var out []rescue.Network
	for _, n := range all {
		if len(out) == maxListed {
			break
		}
		if len(n.SSID) == 0 || len(n.SSID) > 32 || seen[string(n.SSID)] {
			continue
		}
		seen[string(n.SSID)] = true
		out = append(out, n)
	}
	return out
}

// label is a network's name for people: whoever is near can make it anything.
func label(ssid []byte) string {
	if !utf8.Valid(ssid) {
		return "0x" + hex.EncodeToString(ssid)
	}
	s := strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(ssid)))
	if s == "" {
		return "0x" + hex.EncodeToString(ssid)
	}
	return s
}

func esc(s string) string { return html.EscapeString(s) }
