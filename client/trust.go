package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"farhand/internal/pinned"
)

// ParseURL reads a relay's address: https://host[:port][/path], or http:// if
// the host is a loopback address or "localhost". Without a scheme it is https,
// on loopback http. Anything after the path, a user and a password are refused.
func ParseURL(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, errors.New("the relay's URL is empty")
	}
	if !strings.Contains(s, "://") {
		scheme := "https://"
		if u, err := url.Parse("//" + s); err == nil && IsLoopback(u.Hostname()) {
			scheme = "http://"
		}
		s = scheme + s
	}
	u, err := url.Parse(s)
	if err != nil {
		// The error of url.Parse quotes its input, which may hold a password.
		return nil, errors.New("the relay's URL is malformed")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("the relay's URL must begin with https://, not %s://", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the relay's URL names no host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the relay's URL may hold only a host, a port and a path")
	case u.Scheme == "http" && !IsLoopback(u.Hostname()):
		return nil, fmt.Errorf("plain http is allowed only to this machine itself: use https://%s", u.Host)
	}
	u.Host = strings.ToLower(u.Host)
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

// IsLoopback says whether the host can only be this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// trust makes the TLS configuration for one host. With a pin the certificate of
// that hash, which the relay sends in its chain, is the only root.
func trust(host, pin string) (*tls.Config, error) {
	c, err := pinned.Config(host, pin, nil)
	if err != nil {
		return nil, fmt.Errorf("the relay's certificate: %w", err)
	}
	return c, nil
}

// untrusted says whether a dial failed over the certificate rather than the way.
func untrusted(err error) bool {
	if errors.Is(err, pinned.ErrPin) {
		return true
	}
	var (
		verify  *tls.CertificateVerificationError
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &name) || errors.As(err, &unknown) || errors.As(err, &invalid)
}
