package pinned

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get connects to a real TLS server, whose certificate names 127.0.0.1 and
// example.com and is its own root.
func get(t *testing.T, host string, pin func([32]byte) string, roots *x509.CertPool) error {
	t.Helper()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	c, err := Config(host, pin(sha256.Sum256(srv.Certificate().Raw)), roots)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", srv.Listener.Addr().String(), c)
	if err == nil {
		conn.Close()
	}
	return err
}

func hexed(sum [32]byte) string { return hex.EncodeToString(sum[:]) }

func TestPin(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "example.com"} {
		if err := get(t, host, hexed, nil); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := get(t, "other.org", hexed, nil); err == nil {
		t.Error("a pinned root must not stand for every host")
	}
	wrong := func(sum [32]byte) string { sum[0]++; return hexed(sum) }
	if err := get(t, "127.0.0.1", wrong, nil); err == nil || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("another certificate: %v", err)
	}
	none := func([32]byte) string { return "" }
	if err := get(t, "127.0.0.1", none, x509.NewCertPool()); err == nil {
		t.Error("without a pin an unknown root must be refused")
	}
}

func TestParse(t *testing.T) {
	if _, err := Parse(strings.Repeat("aB:", 31) + "ab"); err != nil {
		t.Error(err)
	}
	for _, pin := range []string{"", "ab", strings.Repeat("g", 64)} {
		if _, err := Parse(pin); err == nil {
			t.Errorf("%q accepted", pin)
		}
	}
}
