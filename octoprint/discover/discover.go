// Package discover looks for OctoPrint in the local network by mDNS
// (RFC 6762, RFC 6763). It only asks and listens; it announces nothing. What
// answers is whatever the network sends, and is to be treated so.
package discover

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/hashicorp/mdns"

	"farhand/octoprint"
	"farhand/wire"
)

// service is what OctoPrint announces (docs.octoprint.org, bundled plugins,
// discovery: "ZeroConf Service _octoprint._tcp").
const service = "_octoprint._tcp"

const (
	most    = 64 // answers of one look
	maxPath = 128
)

// Browse asks once and gathers answers until shortly before ctx ends, or for a
// second if it doesn't end.
func Browse(ctx context.Context) ([]octoprint.Found, error) {
	wait := time.Second
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end) - 100*time.Millisecond
	}
	if wait <= 0 {
		return nil, context.Cause(ctx)
	}
	answers := make(chan *mdns.ServiceEntry, most)
	err := mdns.QueryContext(ctx, &mdns.QueryParam{
		Service: service, Domain: "local", Timeout: wait, Entries: answers,
		WantUnicastResponse: true, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return nil, fmt.Errorf("mDNS: %w", err)
	}
	var all []octoprint.Found
	for {
		select {
		case e := <-answers:
			if f, ok := found(e); ok {
				all = append(all, f)
			}
		default:
			return all, nil
		}
	}
}

// found reads one answer. Its TXT record may have the path (u and p, a user and
// a password for a proxy, are left alone).
func found(e *mdns.ServiceEntry) (octoprint.Found, bool) {
	instance, ok := strings.CutSuffix(strings.TrimSuffix(e.Name, "."), "."+service+".local")
	if !ok || e.Port < 1 || e.Port > 65535 {
		return octoprint.Found{}, false
	}
	f := octoprint.Found{Instance: wire.Clean(unescape(instance), wire.MaxDeviceString), Port: e.Port}
	switch {
	case e.AddrV4 != nil:
		f.Host = e.AddrV4.String()
	case e.AddrV6IPAddr != nil && e.AddrV6IPAddr.Zone == "":
		f.Host = e.AddrV6IPAddr.IP.String()
	}
	for _, field := range e.InfoFields {
		key, value, _ := strings.Cut(field, "=")
		if strings.EqualFold(key, "path") && strings.HasPrefix(value, "/") && len(value) <= maxPath && wire.Plain(value) {
			f.Path = value
		}
	}
	return f, f.Host != "" && f.Instance != ""
}

// unescape takes the backslashes off a label as DNS writes it (RFC 1035 section
// 5.1): "OctoPrint\ instance".
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if n, ok := decimal(s[i+1:]); ok {
				b.WriteByte(n)
				i += 3
				continue
			}
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// decimal is the byte that three digits name.
func decimal(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s[:3]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return byte(n), n < 256
}
