package request

import (
	"strings"
	"unicode/utf8"
)

func (p Pairing) check() error {
	for name, text := range map[string]string{
		"verification_uri": p.VerificationURI, "user_code": p.UserCode,
	} {
		if text == "" {
			return errorf(Malformed, "%s is missing", name)
		}
	}
	return bounded(p.VerificationURI, p.VerificationURIComplete, p.UserCode, p.Relay, p.Name, p.Note)
}

func (s Status) check() error {
	if s.State == "" {
		return errorf(Malformed, "state is missing")
	}
	if len(s.Addresses) > MaxAddresses || len(s.Devices) > MaxDevices {
		return errorf(Malformed, "more than %d addresses or %d devices", MaxAddresses, MaxDevices)
	}
	if err := bounded(s.State, s.Detail, s.Name, s.MDNSName, s.Relay, s.ClockState, s.Wifi); err != nil {
		return err
	}
	if err := bounded(s.Addresses...); err != nil {
		return err
	}
	for _, d := range s.Devices {
		if err := bounded(d.ID, d.Desc); err != nil {
			return err
		}
	}
	return nil
}

func bounded(texts ...string) error {
	for _, t := range texts {
		if len(t) > MaxText {
			return errorf(Malformed, "a text is longer than %d bytes", MaxText)
		}
	}
	return nil
}

// Clip is p with its texts cut to what a request may carry. What must not be
// cut, the addresses and the code, stays as it is.
func (p Pairing) Clip() Pairing {
	p.Name, p.Relay, p.Note = clip(p.Name), clip(p.Relay), clip(p.Note)
	return p
}

// Clip is s within the bounds of a request: long texts cut, and what is beyond
// the first MaxAddresses and MaxDevices left out.
func (s Status) Clip() Status {
	for _, text := range []*string{&s.State, &s.Detail, &s.Name, &s.MDNSName, &s.Relay, &s.ClockState, &s.Wifi} {
		*text = clip(*text)
	}
	addresses := s.Addresses[:min(len(s.Addresses), MaxAddresses)]
	s.Addresses = make([]string, len(addresses))
	for i, a := range addresses {
		s.Addresses[i] = clip(a)
	}
	devices := s.Devices[:min(len(s.Devices), MaxDevices)]
	s.Devices = make([]Device, len(devices))
	for i, d := range devices {
		s.Devices[i] = Device{ID: clip(d.ID), Desc: clip(d.Desc)}
	}
	return s
}

// clip cuts at a character's border, and drops what is no UTF-8: JSON would
// replace it by something longer.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= MaxText {
		return s
	}
	cut := MaxText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
