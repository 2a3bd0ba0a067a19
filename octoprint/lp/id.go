package lp

import (
	"strings"

	"farhand/wire"
)

const (
	maxKeys  = 64
	maxKey   = 32
	maxValue = 256
)

// ParseID reads an IEEE 1284 device id, "MFG:Brother;MDL:QL-700;…": keys in
// their short forms and values, both cleaned. A leading length of two bytes, as
// the device sends it, is skipped by the caller. What has no colon is left out;
// of a key that stands twice the first counts.
func ParseID(s string) map[string]string {
	id := make(map[string]string)
	for field := range strings.SplitSeq(s, ";") {
		key, value, ok := strings.Cut(field, ":")
		key = short(strings.ToUpper(wire.Clean(key, maxKey)))
		value = wire.Clean(value, maxValue)
		if !ok || key == "" || value == "" || len(id) == maxKeys {
			continue
		}
		if _, twice := id[key]; !twice {
			id[key] = value
		}
	}
	return id
}

// short is the abbreviation of a key: IEEE 1284 allows both, printers use both.
func short(key string) string {
	switch key {
	case "MANUFACTURER":
		return "MFG"
	case "MODEL":
		return "MDL"
	case "COMMAND SET":
		return "CMD"
	case "CLASS":
		return "CLS"
	case "DESCRIPTION":
		return "DES"
	case "SERN", "SERIALNUMBER":
		return "SN"
	case "COMPATIBLE ID":
		return "CID"
	}
	return key
}

// rawID takes the length off what the device sent: two bytes, big-endian, that
// count themselves; some printers send them little-endian or wrong, so what
// came decides.
func rawID(b []byte) string {
	if len(b) < 2 {
		return ""
	}
	n := int(b[0])<<8 | int(b[1])
	if n < 2 || n > len(b) {
		n = len(b)
	}
	s, _, _ := strings.Cut(string(b[2:n]), "\x00")
	return s
}

// Status is the port's status (USB printing class 1.1 section 4.2.2,
// GET_PORT_STATUS; the bits are those of lp.h, LP_POUTPA and on).
type Status struct {
	Online   bool // selected
	PaperOut bool
	Fault    bool // some other error
}

func decodeStatus(b byte) Status {
	const (
		notError = 0x08 // LP_PERRORP
		selected = 0x10 // LP_PSELECD
		paperOut = 0x20 // LP_POUTPA
	)
	return Status{Online: b&selected != 0, PaperOut: b&paperOut != 0, Fault: b&notError == 0}
}
