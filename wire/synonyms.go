package wire

import (
	"encoding/json"
	"strings"
)

// synonyms are the other names of fields of an operation's args, each with the
// field's own after it. Data and size are what the handle family calls bytes
// that go out and how many are to come in; the rest is what the kernel's headers
// and OctoPrint's API call the same thing.
func synonyms(op string) []string {
	switch op {
	case OpI2CTransfer:
		return []string{"data", "write", "size", "read", "length", "read"}
	case OpI2CSMBus, OpUSBControl:
		return []string{"size", "length"}
	case OpSPITransfer:
		return []string{"size", "read", "length", "read", "bits_per_word", "bits", "max_speed_hz", "speed_hz"}
	case OpUSBReceive:
		return []string{"length", "size"}
	case OpSerialExpect:
		return []string{"data", "send", "patterns", "expect"}
	case OpGPIOWatch:
		return []string{"edges", "edge"}
	case OpPrinterJob:
		return []string{"command", "action"}
	case OpPrinterCommand:
		return []string{"command", "gcode", "commands", "gcode"}
	}
	return nil
}

// CanonicalArgs is args with each field under its own name where it stands under
// another that callers may as well expect: an unknown key is ignored, so that a
// transfer would silently be another one. A field that is there under its own
// name counts, wherever it stands. What is no object comes back as it is.
func CanonicalArgs(op string, args json.RawMessage) json.RawMessage {
	names := synonyms(op)
	if names == nil {
		return args
	}
	var renamed, rest []byte // each field with a comma before it
	err := Fields(args, func(key string, raw []byte) error {
		dst := &rest
		for i := 0; i < len(names); i += 2 {
			if strings.EqualFold(key, names[i]) { // as encoding/json takes names
				dst, key = &renamed, names[i+1]
				break
			}
		}
		*dst = append(append(AppendQuoted(append(*dst, ','), []byte(key)), ':'), raw...)
		return nil
	})
	if err != nil || renamed == nil {
		return args
	}
	// Of two fields of one name the last one counts.
	out := append(renamed, rest...)
	out[0] = '{'
	return append(out, '}')
}
