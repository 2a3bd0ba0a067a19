package discover

import (
	"net"
	"testing"

	"github.com/hashicorp/mdns"

	"farhand/octoprint"
)

func TestFound(t *testing.T) {
	v4 := net.IPv4(10, 0, 0, 7)
	for name, c := range map[string]struct {
		entry mdns.ServiceEntry
		want  octoprint.Found
		ok    bool
	}{
		"plain": {
			mdns.ServiceEntry{Name: `OctoPrint\ instance\ \"shop\"._octoprint._tcp.local.`, AddrV4: v4, Port: 5000, InfoFields: []string{"version=1.11.4", "path=/octo"}},
			octoprint.Found{Instance: `OctoPrint instance "shop"`, Host: "10.0.0.7", Port: 5000, Path: "/octo"}, true,
		},
		"escaped bytes": {
			mdns.ServiceEntry{Name: `b\195\188ro._octoprint._tcp.local.`, AddrV4: v4, Port: 80},
			octoprint.Found{Instance: "büro", Host: "10.0.0.7", Port: 80}, true,
		},
		"another service": {entry: mdns.ServiceEntry{Name: "x._http._tcp.local.", AddrV4: v4, Port: 80}},
		"no address":      {entry: mdns.ServiceEntry{Name: "x._octoprint._tcp.local.", Port: 80}},
		"no port":         {entry: mdns.ServiceEntry{Name: "x._octoprint._tcp.local.", AddrV4: v4}},
		"path of markup": {
			mdns.ServiceEntry{Name: "x._octoprint._tcp.local.", AddrV4: v4, Port: 80, InfoFields: []string{"path=/<b>", "p=secret"}},
			octoprint.Found{Instance: "x", Host: "10.0.0.7", Port: 80}, true,
		},
	} {
		got, ok := found(&c.entry)
		if got != c.want && c.ok || ok != c.ok {
			t.Errorf("%s: %+v %v, want %+v", name, got, ok, c.want)
		}
	}
}

func FuzzUnescape(f *testing.F) {
	f.Add(`OctoPrint\ instance`)
	f.Add(`\195\188\`)
	f.Fuzz(func(t *testing.T, s string) {
		if got := unescape(s); len(got) > len(s) {
			t.Errorf("%q became %q", s, got)
		}
	})
}
