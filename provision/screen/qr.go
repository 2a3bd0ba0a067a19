package screen

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quiet is the width of the light border that a QR code needs, in modules
// (ISO/IEC 18004, 9.1).
const quiet = 4

// code is the QR code of text: the smallest there is, with as much error
// correction as fits into that size. Large modules help a camera more than
// redundancy does.
func code(text string) (*qr.Code, error) {
	best, err := qr.Encode(text, qr.L)
	if err != nil {
		return nil, fmt.Errorf("QR code of %d bytes: %w", len(text), err)
	}
	for _, level := range []qr.Level{qr.M, qr.Q, qr.H} {
		c, err := qr.Encode(text, level)
		if err != nil || c.Size > best.Size {
			break
		}
		best = c
	}
	return best, nil
}

// JoinCode is what the QR code of a WPA2 network holds, in the form that phones
// take (WPA3 specification 3.0, 7.1, "WIFI URI").
func JoinCode(ssid, passphrase string) string {
	escape := strings.NewReplacer(`\`, `\\`, `;`, `\;`, `,`, `\,`, `:`, `\:`, `"`, `\"`)
	return "WIFI:T:WPA;S:" + escape.Replace(ssid) + ";P:" + escape.Replace(passphrase) + ";;"
}
