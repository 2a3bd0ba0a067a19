// Package discover looks for OctoPrint in the local network by mDNS
// (RFC 6762, RFC 6763). It only asks and listens; it announces nothing. What
// answers is whatever the network sends, and is to be treated so.
package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"farhand/octoprint"
	"farhand/wire"
)

// service is what OctoPrint announces (docs.octoprint.org, bundled plugins,
// discovery: "ZeroConf Service _octoprint._tcp").
const service = "_octoprint._tcp.local."

const (
	most    = 64 // answers of one look
	maxPath = 128
	// maxMessage is the largest message, bytes (RFC 6762 section 17).
	maxMessage = 9000
	// maxRecords is how many records of one look are kept.
	maxRecords = 1024
)

// group is where mDNS is spoken (RFC 6762 section 3).
func group() *net.UDPAddr { return &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353} }

// Browse asks once on every network and gathers answers until shortly before
// ctx ends, or for a second if it doesn't end.
func Browse(ctx context.Context) ([]octoprint.Found, error) {
	end := time.Now().Add(time.Second)
	if d, ok := ctx.Deadline(); ok {
		end = d.Add(-100 * time.Millisecond)
	}
	if !time.Now().Before(end) {
		return nil, context.Cause(ctx)
	}
	from, err := addresses()
	if err != nil {
		return nil, fmt.Errorf("mDNS: %w", err)
	}
	return browse(ctx, from, group(), end)
}

// addresses are this machine's on the networks that mDNS is spoken in. A
// question from one of them leaves where it belongs.
func addresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 || i.Flags&net.FlagPointToPoint != 0 {
			continue
		}
		own, err := i.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, a := range own {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				all = append(all, p.Addr())
			}
		}
	}
	return all, nil
}

func browse(ctx context.Context, from []netip.Addr, to *net.UDPAddr, end time.Time) ([]octoprint.Found, error) {
	question, err := query()
	if err != nil {
		return nil, err
	}
	var (
		asking sync.WaitGroup
		mu     sync.Mutex
		got    records
		errs   []error
	)
	for _, a := range from {
		asking.Go(func() {
			err := ask(ctx, a, to, end, question, func(m []byte) {
				mu.Lock()
				defer mu.Unlock()
				got.add(m)
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	all := got.found()
	if err := errors.Join(errs...); len(all) == 0 && err != nil {
		return nil, fmt.Errorf("mDNS: %w", err)
	}
	return all, nil
}

// query asks for the service, with the answer to the asker alone (the highest
// bit of the class, RFC 6762 section 5.4).
func query() ([]byte, error) {
	name, err := dnsmessage.NewName(service)
	if err != nil {
		return nil, err
	}
	const unicast = 1 << 15
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET | unicast}}}
	return m.Pack()
}

// ask sends a question and hands on what answers until the end.
func ask(ctx context.Context, from netip.Addr, to *net.UDPAddr, end time.Time, question []byte, heard func([]byte)) error {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: from.AsSlice()})
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	if _, err := c.WriteToUDP(question, to); err != nil {
		return err
	}
	b := make([]byte, maxMessage)
	for {
		n, _, err := c.ReadFromUDP(b)
		if err != nil {
			return nil // time is up
		}
		heard(b[:n])
	}
}

// records are what was heard, by lower-case name.
type records struct {
	instances []string // as they were written
	srv       map[string]dnsmessage.SRVResource
	txt       map[string][]string
	address   map[string]netip.Addr
	n         int
}

// add reads a message; what is no answer is passed over.
func (r *records) add(message []byte) {
	if r.srv == nil {
		r.srv, r.txt, r.address = make(map[string]dnsmessage.SRVResource), make(map[string][]string), make(map[string]netip.Addr)
	}
	var m dnsmessage.Message
	if err := m.Unpack(message); err != nil || !m.Response {
		return
	}
	for _, list := range [][]dnsmessage.Resource{m.Answers, m.Additionals} {
		for _, one := range list {
			if r.n++; r.n > maxRecords {
				return
			}
			name := strings.ToLower(one.Header.Name.String())
			switch body := one.Body.(type) {
			case *dnsmessage.PTRResource:
				if name == service && len(r.instances) < most {
					r.instances = append(r.instances, body.PTR.String())
				}
			case *dnsmessage.SRVResource:
				r.srv[name] = *body
			case *dnsmessage.TXTResource:
				r.txt[name] = body.TXT
			case *dnsmessage.AResource: // preferred, however late it comes
				r.address[name] = netip.AddrFrom4(body.A)
			case *dnsmessage.AAAAResource:
				// One of the link alone would need to say which link.
				if a := netip.AddrFrom16(body.AAAA); !a.IsLinkLocalUnicast() && !r.address[name].Is4() {
					r.address[name] = a
				}
			}
		}
	}
}

// found are the instances whose place is known. A TXT record may have the path
// (u and p, a user and a password for a proxy, are left alone).
func (r *records) found() []octoprint.Found {
	var all []octoprint.Found
	seen := make(map[string]bool)
	for _, full := range r.instances {
		key := strings.ToLower(full)
		label, ok := cutSuffixFold(full, "."+service)
		srv, known := r.srv[key]
		host := r.address[strings.ToLower(srv.Target.String())]
		if !ok || !known || srv.Port == 0 || !host.IsValid() || seen[key] {
			continue
		}
		seen[key] = true
		f := octoprint.Found{Instance: wire.Clean(label, wire.MaxDeviceString), Host: host.String(), Port: int(srv.Port)}
		for _, field := range r.txt[key] {
			name, value, _ := strings.Cut(field, "=")
			if strings.EqualFold(name, "path") && strings.HasPrefix(value, "/") && len(value) <= maxPath && wire.Plain(value) {
				f.Path = value
			}
		}
		if f.Instance != "" {
			all = append(all, f)
		}
	}
	return all
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if len(s) < len(suffix) || !strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s, false
	}
	return s[:len(s)-len(suffix)], true
}
