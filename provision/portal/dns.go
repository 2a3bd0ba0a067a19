package portal

import (
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// maxQuery bounds a query, in bytes: what DNS over UDP always carries (RFC 1035,
// section 4.2.1).
const maxQuery = 512

// answerTTL is how many seconds an answer may be kept: hardly, since it is a lie
// as soon as the rescue network has ended.
const answerTTL = 5

// answerNames answers every query with our own address until c is closed.
func (p *Portal) answerNames(c net.PacketConn) {
	buf := make([]byte, maxQuery)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		a, err := netip.ParseAddrPort(from.String())
		if err != nil || !p.cfg.Visitors.Contains(a.Addr().Unmap()) {
			continue
		}
		if reply, ok := answer(buf[:n], p.cfg.Address); ok {
			_, _ = c.WriteTo(reply, from) // to a visitor who may have left
		}
	}
}

// answer makes the answer to a query: addr for an IPv4 address, and otherwise
// that there is none. What is no query, or more than one, isn't answered.
func answer(query []byte, addr netip.Addr) ([]byte, bool) {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response || h.OpCode != 0 {
		return nil, false
	}
	q, err := p.Question()
	if err != nil {
		return nil, false
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		return nil, false
	}
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: h.ID, Response: true, Authoritative: true,
			RecursionDesired: h.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{q},
	}
	if q.Type == dnsmessage.TypeA && q.Class == dnsmessage.ClassINET {
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: answerTTL},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	out, err := reply.Pack()
	return out, err == nil
}
