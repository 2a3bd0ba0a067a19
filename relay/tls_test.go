package relay

import (
	"crypto/x509"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/atomicfile"
)

func TestRenewal(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(testLog{t}, nil))
		if _, err := Init(dir, []string{"b.test", "a.test"}); err != nil {
			t.Fatal(err)
		}
		certs, err := loadCertificates(Config{DataDir: dir, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		first := certs.current.Load().Leaf
		if life := first.NotAfter.Sub(first.NotBefore); life > leafLife || first.NotBefore.After(time.Now().Add(-time.Hour)) {
			t.Fatalf("lives %v from %v", life, first.NotBefore)
		}
		refresh := func() {
			t.Helper()
			if err := certs.refresh(log); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Until(first.NotAfter) - renewBefore - time.Hour)
		if refresh(); !certs.current.Load().Leaf.Equal(first) {
			t.Fatal("renewed too early")
		}
		<-time.After(2 * time.Hour)
		refresh()
		second := certs.current.Load().Leaf
		if second.Equal(first) || !second.NotAfter.After(first.NotAfter) || second.DNSNames[0] != "b.test" || len(second.DNSNames) != 2 {
			t.Fatalf("%v %v", second.NotAfter, second.DNSNames)
		}
		chain := certs.current.Load().Certificate
		if ca, err := x509.ParseCertificate(chain[len(chain)-1]); err != nil || len(chain) != 2 || fingerprint(ca) != certs.caSHA256 {
			t.Fatalf("the CA isn't in the chain: %v", err)
		}
		// Gone, as after a restore without it: made again.
		if err := os.Remove(leafPath(dir)); err != nil {
			t.Fatal(err)
		}
		if refresh(); certs.current.Load().Leaf.Equal(second) {
			t.Fatal("the removed one is still shown")
		}
		// Unreadable: the old one stays.
		if err := atomicfile.Write(leafPath(dir), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
		third := certs.current.Load()
		if err := certs.refresh(log); err == nil || certs.current.Load() != third {
			t.Fatalf("%v", err)
		}
	})
}
