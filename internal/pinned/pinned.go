// Package pinned makes TLS trust exactly one certificate as root: the one in the
// server's chain whose SHA-256 is known beforehand. The host name is still
// checked. Without a pin the usual roots count.
package pinned

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// ErrPin says that no certificate of the chain has the pinned hash.
var ErrPin = errors.New("no certificate that the server sent has the pinned SHA-256")

// Parse reads a pin: 64 hex digits, colons between them allowed.
func Parse(pin string) ([sha256.Size]byte, error) {
	b, err := hex.DecodeString(strings.ToLower(strings.ReplaceAll(pin, ":", "")))
	if err != nil || len(b) != sha256.Size {
		return [sha256.Size]byte{}, errors.New("a pin must be 64 hexadecimal digits")
	}
	return [sha256.Size]byte(b), nil
}

// Config is the TLS configuration for one host. With a pin the certificate of
// that hash, which the server must send in its chain, is the only root; roots
// (nil: the system's) count without one.
func Config(host, pin string, roots *x509.CertPool) (*tls.Config, error) {
	if pin == "" {
		return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: roots}, nil
	}
	return config(host, pin, time.Now)
}

// TimelessConfig is Config for a clock that is known to be wrong: the chain is
// judged at the first moment at which all of it is valid, whatever the clock
// says. Host and pin count as ever. It serves to ask for the time, and nothing
// else.
func TimelessConfig(host, pin string) (*tls.Config, error) {
	return config(host, pin, nil)
}

// config verifies at what now says; nil: when all of the chain has begun.
func config(host, pin string, now func() time.Time) (*tls.Config, error) {
	want, err := Parse(pin)
	if err != nil {
		return nil, err
	}
	// Verification is ours, not skipped: VerifyConnection runs on every
	// handshake, resumed ones included. The host is taken from here because
	// ConnectionState.ServerName is empty for an IP address.
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: true}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		at := begun(state.PeerCertificates)
		if now != nil {
			at = now()
		}
		return verify(state.PeerCertificates, host, want, at)
	}
	return c, nil
}

// begun is when the last certificate of a chain begins to be valid.
func begun(chain []*x509.Certificate) time.Time {
	var at time.Time
	for _, cert := range chain {
		if cert.NotBefore.After(at) {
			at = cert.NotBefore
		}
	}
	return at
}

func verify(chain []*x509.Certificate, host string, want [sha256.Size]byte, at time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, cert := range chain {
		if sha256.Sum256(cert.Raw) == want {
			roots.AddCert(cert)
			found = true
		} else {
			between.AddCert(cert)
		}
	}
	if !found {
		return ErrPin
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host, CurrentTime: at})
	return err
}
