package octoprint

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"farhand/device"
	"farhand/wire"
)

const (
	browseEvery = time.Minute
	browseTime  = 1500 * time.Millisecond
	maxFound    = 32
	// missedLooks is how often a printer may be missed before it is no longer
	// listed: multicast gets lost in wireless networks.
	missedLooks = 3
)

// Found is a printer in the network that nobody configured.
type Found struct {
	Instance string // as it calls itself: OctoPrint instance "workshop"
	Host     string // name or address
	Port     int
	Path     string // prefix
	TLS      bool
}

// Browser looks for printers once, until ctx ends.
type Browser func(ctx context.Context) ([]Found, error)

// browse looks again and again.
func (s *Servers) browse() {
	t := time.NewTicker(browseEvery)
	defer t.Stop()
	missed := make(map[string]int)
	for {
		ctx, cancel := context.WithTimeout(s.ctx, browseTime)
		now, err := s.opts.Browse(ctx)
		cancel()
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Debug("looking for printers in the network failed", "error", err)
		} else {
			s.sighted(now, missed)
		}
		select {
		case <-t.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// sighted merges what was seen now with what was seen before.
func (s *Servers) sighted(now []Found, missed map[string]int) {
	s.mu.Lock()
	seen := make(map[string]bool)
	var next []Found
	for _, f := range now {
		if id := f.id(); !seen[id] && len(next) < maxFound && f.Host != "" {
			seen[id] = true
			missed[id] = 0
			next = append(next, f)
		}
	}
	for _, f := range s.found {
		id := f.id()
		if seen[id] || len(next) == maxFound {
			continue
		}
		if missed[id]++; missed[id] < missedLooks {
			next = append(next, f)
			seen[id] = true
		}
	}
	for id := range missed {
		if !seen[id] {
			delete(missed, id)
		}
	}
	s.found = next
	s.mu.Unlock()
	s.notify()
}

func (f Found) id() string { return "printer:found-" + device.IDPart(f.Instance) }

// address is what the owner would write into the configuration.
func (f Found) address() string {
	scheme, usual := "http", 80
	if f.TLS {
		scheme, usual = "https", 443
	}
	host := strings.TrimSuffix(f.Host, ".")
	if f.Port != usual {
		host = net.JoinHostPort(host, strconv.Itoa(f.Port))
	}
	return device.Clean(scheme + "://" + host + strings.TrimRight(f.Path, "/"))
}

func (f Found) describe() device.Descriptor {
	address := f.address()
	return device.Descriptor{
		HardwareDevice: wire.HardwareDevice{
			Type: device.Printer, ID: f.id(), Desc: "found: " + device.Clean(f.Instance), Driver: "octoprint",
			Reason: device.Clean("found on the network; to use it, add \"NAME=" + address + "\" to hardware.printers"),
		},
		Instance: address,
	}
}

// configured says whether a found printer is one that the owner has added.
func (s *Servers) configured(f Found) bool {
	for _, p := range s.printers {
		if strings.TrimRight(p.URL.String(), "/") == f.address() {
			return true
		}
	}
	return false
}
