package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
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

// A certificate that is replaced in the files is shown to who comes after that;
// who is connected notices nothing, and neither does anybody of a pair that
// doesn't fit.
func TestCertificateReplaced(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, other} {
		if _, err := Init(dir, []string{"127.0.0.1"}); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(testLog{t}, nil))
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		install := func(from, to string) {
			t.Helper()
			b, err := os.ReadFile(leafPath(from))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(to, time.Now(), time.Now()); err != nil { // the file system's clock isn't ours
				t.Fatal(err)
			}
		}
		install(one, cert)
		install(one, key)
		certs, err := loadCertificates(Config{DataDir: dir, TLSCert: cert, TLSKey: key, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		defer client.Close()
		live := tls.Server(server, certs.config())
		defer live.Close()
		dial := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
		speak := func() {
			t.Helper()
			go live.Write([]byte("x"))
			if _, err := dial.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		speak()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { certs.keep(ctx, log); close(done) }()
		first := certs.current.Load()
		install(other, cert)
		<-time.After(2 * lookAtFiles)
		if certs.current.Load() != first {
			t.Fatal("half a pair was taken")
		}
		speak()
		install(other, key)
		<-time.After(2 * lookAtFiles)
		if certs.current.Load().Leaf.Equal(first.Leaf) {
			t.Fatal("the new pair wasn't taken")
		}
		speak()
		cancel()
		<-done
	})
}
