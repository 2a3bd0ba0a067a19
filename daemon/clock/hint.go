package clock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"farhand/internal/pinned"
)

// NotYetValid says whether err is that a certificate isn't valid yet by our
// clock.
func NotYetValid(err error) bool {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok && invalid.Reason == x509.Expired && invalid.Cert != nil && time.Now().Before(invalid.Cert.NotBefore)
}

// hintTimeout bounds the one request of Ask.
const hintTimeout = 15 * time.Second

// ErrNoHint says that the host gave no date that may be used.
var ErrNoHint = errors.New("no usable date")

// Ask asks the pinned host for the date (RFC 9110 section 6.6.1). Nothing is
// sent but the request line and the host's name. The certificate chain must end
// at the pinned one and name the host, as always; only the moment at which it is
// judged is not this clock's but the first one at which all of it is valid. The
// answer is used only if it lies after this clock's time, and within the life of
// every certificate in the chain: whoever has the host's key could move us
// about in that time, and no further, and never back.
func Ask(ctx context.Context, host *url.URL, pin string) (time.Time, error) {
	if pin == "" || host.Scheme != "https" {
		return time.Time{}, fmt.Errorf("%w: only of a host whose certificate is pinned", ErrNoHint)
	}
	config, err := pinned.TimelessConfig(host.Hostname(), pin)
	if err != nil {
		return time.Time{}, err
	}
	var chain []*x509.Certificate
	verify := config.VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		chain = state.PeerCertificates
		return verify(state)
	}
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, (&url.URL{Scheme: host.Scheme, Host: host.Host, Path: "/"}).String(), nil)
	if err != nil {
		return time.Time{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask %s for the date: %w", host.Host, err)
	}
	resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %s told none", ErrNoHint, host.Host)
	}
	return date, within(date, time.Now(), chain)
}

// within says why a date may not be used.
func within(date, now time.Time, chain []*x509.Certificate) error {
	if !date.After(now) {
		return fmt.Errorf("%w: %s isn't after this clock's time", ErrNoHint, date.UTC().Format(time.RFC3339))
	}
	for _, cert := range chain {
		if date.Before(cert.NotBefore) || date.After(cert.NotAfter) {
			return fmt.Errorf("%w: %s lies outside of the life of the host's certificate", ErrNoHint, date.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
