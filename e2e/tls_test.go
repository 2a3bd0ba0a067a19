package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/client"
)

// A relay with a CA of its own, which daemon and operator know by its hash.
func TestTLS(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	_, port, err := net.SplitHostPort(b.listen)
	if err != nil {
		t.Fatal(err)
	}
	b.url = "https://localhost:" + port
	r := b.relayctl("init", "--name", "localhost", "--json")
	made := parse[struct {
		Sum string `json:"ca_sha256"`
	}](t, r.stdout)
	if r.code != 0 || len(made.Sum) != 64 {
		t.Fatalf("init gives %+v", r)
	}
	ca, _ := pem.Decode(b.read(filepath.Join(b.relayDir(), "tls", "ca.pem")))
	if sum := sha256.Sum256(ca.Bytes); hex.EncodeToString(sum[:]) != made.Sum {
		t.Errorf("init prints %s, the certificate has %x", made.Sum, sum)
	}
	if again := b.relayctl("init", "--name", "localhost"); again.code != 0 || !strings.Contains(again.stdout, made.Sum) {
		t.Errorf("init again gives %+v", again)
	}
	if other := b.relayctl("init", "--name", "other.example.org"); other.code != 78 {
		t.Errorf("init for another name gives %+v, want 78", other)
	}
	b.startRelay()
	if sum := b.relay.await(0, `ca_sha256: ([0-9a-f]{64})`); sum[1] != made.Sum {
		t.Errorf("run prints the hash %s", sum[1])
	}
	setup := b.relay.await(0, `setup token: (\S+)`)
	wrong := strings.Repeat("0", 64)

	t.Run("operator", func(t *testing.T) {
		b.write(filepath.Join(b.dir, "passphrase"), "a passphrase for tests\n")
		login := []string{"login", b.url, "--name", "ann", "--passphrase-file", filepath.Join(b.dir, "passphrase"), "--setup", setup[1]}
		b.owner.fails(69, client.RelayUntrusted, login...)
		b.owner.fails(69, client.RelayUntrusted, append(login, "--ca-sha256", wrong)...)
		b.owner.fails(2, "USAGE", append(login, "--ca-sha256", "abc")...)
		b.owner.must(append(login, "--ca-sha256", made.Sum)...)
		b.owner.must("machines") // the hash is remembered
		plain := strings.Replace(b.url, "https", "http", 1)
		if r := b.with("x").run("--relay", plain, "machines"); r.code == 0 || !strings.Contains(r.stderr, "https") {
			t.Errorf("by http the answer is %+v", r)
		}
		// Pinned or not, the name is checked: the certificate is for localhost.
		b.owner.fails(69, client.RelayUntrusted, append([]string{"login", "https://" + b.listen}, append(login[2:], "--ca-sha256", made.Sum)...)...)
		b.with("x").fails(2, "USAGE", "--relay", "http://relay.example.org", "machines")
	})

	t.Run("device", func(t *testing.T) {
		b.config = []string{"[tls]", fmt.Sprintf("pin_sha256 = %q", made.Sum)}
		b.pair("files,shell")
		if got := b.owner.must("exec", "--", "echo", "through TLS"); got != "through TLS\n" {
			t.Errorf("exec says %q", got)
		}
		b.owner.must("audit", "verify")
		b.daemon.stop()
		// By the file instead of the hash.
		b.config = []string{"[tls]", fmt.Sprintf("ca_file = %q", filepath.Join(b.relayDir(), "tls", "ca.pem"))}
		b.configure()
		b.startDaemon()
		b.daemon.await(0, `^Online`)
		b.daemon.stop()
	})

	t.Run("refused", func(t *testing.T) {
		// A wrong hash, and none: the daemon doesn't send its token, and goes on
		// trying, since a certificate may be renewed.
		for _, lines := range [][]string{{"[tls]", fmt.Sprintf("pin_sha256 = %q", wrong)}, nil} {
			b.config = lines
			b.configure()
			b.startDaemon()
			b.daemon.await(0, `certificate|x509`)
			b.awaitState("connecting")
			doctor := b.farhandd("", "doctor")
			if doctor.code != 1 || !strings.Contains(doctor.stdout, "pin") {
				t.Errorf("doctor gives %d\n%s", doctor.code, doctor.stdout)
			}
			b.daemon.stop()
			if strings.Contains(b.daemon.out.String(), "Online") {
				t.Error("the daemon connected")
			}
		}
		b.config = []string{"[tls]", `pin_sha256 = "no hash"`}
		b.configure()
		if r := b.farhandd("", "run"); r.code != 78 {
			t.Errorf("with a malformed hash run gives %+v, want 78", r)
		}
	})
}

// Plain connections stay on this machine.
func TestPlain(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	for _, address := range []string{"http://relay.example.org", "ws://192.0.2.7:7443", "http://10.0.0.1", "ws://localhost.example.org"} {
		b.url = address
		b.configure()
		if r := b.farhandd("", "run"); r.code != 78 || !strings.Contains(r.stderr, "platform_url") {
			t.Errorf("with %s run gives %+v, want 78", address, r)
		}
		b.with("token").fails(2, "USAGE", "machines")
	}
	if r := b.relayctl("run", "--listen", "0.0.0.0:0"); r.code != 78 || !strings.Contains(r.stderr, "init") {
		t.Errorf("a relay without a certificate on every address gives %+v, want 78", r)
	}
	if r := b.relayctl("run", "--listen", "127.0.0.1:0", "--public-url", "http://relay.example.org"); r.code != 78 {
		t.Errorf("a plain public URL gives %+v, want 78", r)
	}
	if _, err := os.Stat(filepath.Join(b.stateDir(), "tokens.json")); err == nil {
		t.Error("tokens were made")
	}
}
