package discover

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"farhand/octoprint"
)

func name(s string) dnsmessage.Name { return dnsmessage.MustNewName(s) }

func resource(of string, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name(of), Class: dnsmessage.ClassINET, TTL: 10}, Body: body}
}

// instance is what one OctoPrint answers.
func instance(label, host string, port uint16, address [4]byte, txt ...string) []byte {
	full := label + "." + service
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
		Answers: []dnsmessage.Resource{resource(service, &dnsmessage.PTRResource{PTR: name(full)})},
		Additionals: []dnsmessage.Resource{
			resource(full, &dnsmessage.SRVResource{Port: port, Target: name(host)}),
			resource(full, &dnsmessage.TXTResource{TXT: append(txt, "")}),
		}}
	if address != [4]byte{} {
		m.Additionals = append(m.Additionals, resource(host, &dnsmessage.AResource{A: address}))
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func TestFound(t *testing.T) {
	v4 := [4]byte{10, 0, 0, 7}
	for what, c := range map[string]struct {
		messages [][]byte
		want     []octoprint.Found
	}{
		"plain": {
			[][]byte{instance(`OctoPrint instance "shop"`, "Octo.local.", 5000, v4, "version=1.11.4", "path=/octo")},
			[]octoprint.Found{{Instance: `OctoPrint instance "shop"`, Host: "10.0.0.7", Port: 5000, Path: "/octo"}},
		},
		"bytes, twice": {
			[][]byte{instance("büro", "octo.local.", 80, v4), instance("büro", "octo.local.", 80, v4)},
			[]octoprint.Found{{Instance: "büro", Host: "10.0.0.7", Port: 80}},
		},
		"no address":     {[][]byte{instance("x", "octo.local.", 80, [4]byte{})}, nil},
		"no port":        {[][]byte{instance("x", "octo.local.", 0, v4)}, nil},
		"path of markup": {[][]byte{instance("x", "octo.local.", 80, v4, "path=/<b>", "p=secret")}, []octoprint.Found{{Instance: "x", Host: "10.0.0.7", Port: 80}}},
		"a question":     {[][]byte{mustQuery(t)}, nil},
		"nonsense":       {[][]byte{nil, []byte("x"), make([]byte, 5000)}, nil},
	} {
		var r records
		for _, m := range c.messages {
			r.add(m)
		}
		if got := r.found(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

func mustQuery(t *testing.T) []byte {
	t.Helper()
	b, err := query()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A responder is asked over a socket, and answers the asker.
func TestBrowse(t *testing.T) {
	responder, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer responder.Close()
	answered := make(chan error, 1)
	go func() {
		b := make([]byte, 512)
		n, from, err := responder.ReadFromUDP(b)
		var q dnsmessage.Message
		if err == nil {
			err = q.Unpack(b[:n])
		}
		if err == nil && (len(q.Questions) != 1 || q.Questions[0].Name.String() != service || q.Questions[0].Type != dnsmessage.TypePTR) {
			err = errors.New("it doesn't ask for the service")
		}
		if err == nil {
			_, err = responder.WriteToUDP(instance("shop", "octo.local.", 80, [4]byte{10, 0, 0, 7}), from)
		}
		answered <- err
	}()
	got, err := browse(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")}, responder.LocalAddr().(*net.UDPAddr), time.Now().Add(500*time.Millisecond))
	if err := errors.Join(err, <-answered); err != nil {
		t.Fatal(err)
	}
	if want := []octoprint.Found{{Instance: "shop", Host: "10.0.0.7", Port: 80}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := browse(over, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, responder.LocalAddr().(*net.UDPAddr), time.Now().Add(time.Minute)); !errors.Is(err, context.Canceled) {
		t.Errorf("a look that is called off: %v", err)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(instance("shop", "octo.local.", 80, [4]byte{10, 0, 0, 7}, "path=/x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r records
		r.add(b)
		for _, got := range r.found() {
			if got.Host == "" || got.Port == 0 || got.Instance == "" {
				t.Errorf("%+v", got)
			}
		}
	})
}
