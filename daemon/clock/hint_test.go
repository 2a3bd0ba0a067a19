package clock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"farhand/internal/pinned"
)

// host is a TLS server on loopback whose authority and certificate begin at
// from, and which says that it is now.
func host(t *testing.T, from, to time.Time, now string) (*url.URL, string) {
	t.Helper()
	caKey, leafKey := key(t), key(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: from.Add(-time.Hour), NotAfter: to.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER := sign(t, ca, ca, caKey, caKey)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "relay"}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER := sign(t, leaf, ca, leafKey, caKey)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = []string{now}
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER, caDER}, PrivateKey: leafKey}}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(caDER)
	return u, hex.EncodeToString(sum[:])
}

func key(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sign(t *testing.T, cert, parent *x509.Certificate, of, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, of.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestHint: field case 77, a date is taken from the pinned host alone, forward
// alone, and only within the life of its certificates; verification is never
// turned off.
func TestHint(t *testing.T) {
	now := time.Now()
	from, to := now.Add(24*time.Hour), now.Add(72*time.Hour)
	good := from.Add(6 * time.Hour).UTC().Truncate(time.Second)
	u, pin := host(t, from, to, good.Format(http.TimeFormat))

	// By our clock the host isn't valid yet, and so it stays for everything else.
	plain, err := pinned.Config(u.Hostname(), pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", u.Host, plain)
	if err == nil {
		conn.Close()
	}
	if !NotYetValid(err) {
		t.Fatalf("got %v, want a certificate that isn't valid yet", err)
	}
	if got, err := Ask(t.Context(), u, pin); err != nil || !got.Equal(good) {
		t.Errorf("%v, %v", got, err)
	}

	wrong := "00" + pin[2:]
	if _, err := Ask(t.Context(), u, wrong); !errors.Is(err, pinned.ErrPin) {
		t.Errorf("another pin: %v", err)
	}
	if _, err := Ask(t.Context(), u, ""); !errors.Is(err, ErrNoHint) {
		t.Errorf("without a pin: %v", err)
	}
	other := *u
	other.Host = "localhost:" + u.Port()
	if got, err := Ask(t.Context(), &other, pin); err == nil {
		t.Errorf("a host that the certificate doesn't name gave %v", got)
	}
	for name, date := range map[string]string{
		"back":             now.Add(-time.Hour).UTC().Format(http.TimeFormat),
		"before its begin": from.Add(-time.Minute).UTC().Format(http.TimeFormat),
		"after its end":    to.Add(time.Minute).UTC().Format(http.TimeFormat),
		"no date":          "tomorrow",
	} {
		u, pin := host(t, from, to, date)
		if got, err := Ask(t.Context(), u, pin); !errors.Is(err, ErrNoHint) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, u, pin); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNotYetValid(t *testing.T) {
	now := time.Now()
	u, pin := host(t, now.Add(-72*time.Hour), now.Add(-24*time.Hour), "")
	config, err := pinned.Config(u.Hostname(), pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", u.Host, config)
	if err == nil {
		conn.Close()
	}
	if err == nil || NotYetValid(err) {
		t.Errorf("an expired certificate: %v", err)
	}
}
