package daemon

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mdp/qrterminal/v3"

	"farhand/provision/screen"
)

// showCode writes the pairing code for a person: the QR code, and always the
// code and the address beside it, so that whoever scans can compare.
func showCode(w io.Writer, p PairingStatus, now time.Time) error {
	target := p.VerificationURIComplete
	if target == "" {
		target = p.VerificationURI
	}
	var qr strings.Builder
	qrterminal.GenerateWithConfig(target, qrterminal.Config{
		Level:          qrterminal.L,
		Writer:         &qr,
		HalfBlocks:     true,
		BlackChar:      qrterminal.BLACK_BLACK,
		BlackWhiteChar: qrterminal.BLACK_WHITE,
		WhiteChar:      qrterminal.WHITE_WHITE,
		WhiteBlackChar: qrterminal.WHITE_BLACK,
		QuietZone:      2,
	})
	_, err := fmt.Fprintf(w, `
%s
  To pair this machine, scan the code or open

      %s

  and compare the code there with this one:

      %s

  or type on a machine with the farhand command:

      farhand approve %s

  The code is good for %s.

`, qr.String(), p.VerificationURI, p.UserCode, p.UserCode, screen.Lasting(p.ExpiresAt.Sub(now)))
	return err
}
