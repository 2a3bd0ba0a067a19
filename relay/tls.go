package relay

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
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"farhand/internal/atomicfile"
)

const (
	// caLife is how long a pinned hash stays good.
	caLife = 10 * 365 * 24 * time.Hour
	// leafLife is what browsers accept at most (398 days).
	leafLife = 398 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced.
	renewBefore = 60 * 24 * time.Hour
	// backdate lets in clients whose clock is a bit late.
	backdate = 24 * time.Hour
	// lookAgain is how often a running relay looks whether its own certificate is
	// to be renewed, and lookAtFiles whether the files have changed.
	lookAgain   = time.Hour
	lookAtFiles = 5 * time.Second
)

func caPath(dataDir string) string    { return filepath.Join(dataDir, "tls", "ca.pem") }
func caKeyPath(dataDir string) string { return filepath.Join(dataDir, "tls", "ca.key") }

// leafPath holds key and chain in one file, so that they change together.
func leafPath(dataDir string) string { return filepath.Join(dataDir, "tls", "relay.pem") }

// Init makes a private CA, which can vouch for the given names alone, and a
// certificate for them (host names or IP addresses, the first being the one in
// links), and returns the lower-case hex SHA-256 of the CA certificate's DER. If
// that was done before for the same names it only returns the hash.
func Init(dataDir string, names []string) (caSHA256 string, err error) {
	names, err = checkNames(names)
	if err != nil {
		return "", err
	}
	ca, key, err := readCA(dataDir)
	switch {
	case err == nil:
		if have := namesOf(ca); !sameNames(have, names) {
			return "", fmt.Errorf("%s was made for %s; devices trust it by its hash, so it isn't replaced: remove it yourself to start anew: %w",
				caPath(dataDir), strings.Join(have, ", "), ErrConfig)
		}
	case errors.Is(err, fs.ErrNotExist):
		if ca, key, err = makeCA(dataDir, names); err != nil {
			return "", err
		}
	default:
		return "", err
	}
	if _, err := readPair(leafPath(dataDir), leafPath(dataDir)); errors.Is(err, fs.ErrNotExist) {
		if err := makeLeaf(dataDir, ca, key, names); err != nil {
			return "", err
		}
	}
	return fingerprint(ca), nil
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func checkNames(names []string) ([]string, error) {
	var out []string
	for _, n := range names {
		n = strings.ToLower(strings.TrimSpace(n))
		if ip := net.ParseIP(n); ip != nil {
			n = ip.String()
		} else if !isHostName(n) {
			return nil, fmt.Errorf("%q is neither a host name nor an IP address: %w", n, ErrConfig)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no name for the certificate: %w", ErrConfig)
	}
	return out, nil
}

// isHostName is RFC 1123 section 2.1 without a dot at the end.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

// namesOf are the names that a CA of ours may vouch for.
func namesOf(ca *x509.Certificate) []string {
	names := slices.Clone(ca.PermittedDNSDomains)
	for _, n := range ca.PermittedIPRanges {
		names = append(names, n.IP.String())
	}
	return names
}

func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func makeCA(dataDir string, names []string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("CA key: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber:                newSerial(),
		Subject:                     pkix.Name{CommonName: "Farhand relay CA for " + names[0]},
		NotBefore:                   time.Now().Add(-backdate),
		NotAfter:                    time.Now().Add(caLife),
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
	}
	constrain(t, names)
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("CA certificate: %w", err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("CA certificate: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(caPath(dataDir)), 0o700); err != nil {
		return nil, nil, fmt.Errorf("CA: %w", err)
	}
	// The key first: a certificate that is there has its key.
	if err := atomicfile.Write(caKeyPath(dataDir), keyPEM, 0o600); err != nil {
		return nil, nil, fmt.Errorf("CA key: %w", err)
	}
	if err := atomicfile.Write(caPath(dataDir), encodeCert(der), 0o644); err != nil {
		return nil, nil, fmt.Errorf("CA certificate: %w", err)
	}
	return ca, key, nil
}

// constrain keeps the CA to its names (RFC 5280 section 4.2.1.10). A kind of
// name that isn't among them is shut out as a whole, as a list of permitted
// names says nothing of other kinds.
func constrain(t *x509.Certificate, names []string) {
	all := func(bits int) *net.IPNet {
		return &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
	}
	for _, n := range names {
		ip := net.ParseIP(n)
		switch {
		case ip == nil:
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, n)
		case ip.To4() != nil:
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: ip.To4(), Mask: net.CIDRMask(32, 32)})
		default:
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)})
		}
	}
	if len(t.PermittedDNSDomains) == 0 {
		t.ExcludedDNSDomains = []string{""}
	}
	if len(t.PermittedIPRanges) == 0 {
		t.ExcludedIPRanges = []*net.IPNet{all(32), all(128)}
	}
}

func makeLeaf(dataDir string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, names []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("relay key: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(),
		Subject:      pkix.Name{CommonName: names[0]},
		NotBefore:    time.Now().Add(-backdate),
		NotAfter:     time.Now().Add(leafLife - backdate),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if t.NotAfter.After(ca.NotAfter) {
		t.NotAfter = ca.NotAfter
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, key.Public(), caKey)
	if err != nil {
		return fmt.Errorf("relay certificate: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	file := slices.Concat(keyPEM, encodeCert(der), encodeCert(ca.Raw))
	if err := atomicfile.Write(leafPath(dataDir), file, 0o600); err != nil {
		return fmt.Errorf("relay certificate: %w", err)
	}
	return nil
}

func newSerial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand doesn't fail
	}
	return n.Add(n, big.NewInt(1))
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// readCA reads the CA; fs.ErrNotExist, wrapped, if there is none.
func readCA(dataDir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := readPair(caPath(dataDir), caKeyPath(dataDir))
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("%s: not an ECDSA key", caKeyPath(dataDir))
	}
	return pair.Leaf, key, nil
}

func readPair(certPath, keyPath string) (*tls.Certificate, error) {
	cert, err := os.ReadFile(certPath)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, fmt.Errorf("certificate's key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", certPath, err)
	}
	return &pair, nil
}

// certificates are what the relay shows to its clients.
type certificates struct {
	dataDir           string
	certPath, keyPath string
	own               bool   // made by Init: renewed by us
	caSHA256          string // of our own CA
	name              string // the first name, for links
	current           atomic.Pointer[tls.Certificate]
}

// stamp tells one state of the files from another without reading them.
type stamp [2]struct {
	at   time.Time
	size int64
}

func (c *certificates) stamp() stamp {
	var s stamp
	for i, path := range []string{c.certPath, c.keyPath} {
		if info, err := os.Stat(path); err == nil {
			s[i].at, s[i].size = info.ModTime(), info.Size()
		}
	}
	return s
}

// loadCertificates reads what the configuration or Init left; nil if there is
// neither.
func loadCertificates(cfg Config) (*certificates, error) {
	c := &certificates{dataDir: cfg.DataDir, certPath: cfg.TLSCert, keyPath: cfg.TLSKey}
	switch {
	case (cfg.TLSCert == "") != (cfg.TLSKey == ""):
		return nil, fmt.Errorf("a certificate and its key are given together: %w", ErrConfig)
	case cfg.TLSCert == "":
		ca, _, err := readCA(cfg.DataDir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		c.own, c.caSHA256 = true, fingerprint(ca)
		c.certPath, c.keyPath = leafPath(cfg.DataDir), leafPath(cfg.DataDir)
	}
	if err := c.refresh(cfg.Log); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrConfig)
	}
	leaf := c.current.Load().Leaf
	switch {
	case len(leaf.DNSNames) > 0 && (len(leaf.IPAddresses) == 0 || leaf.Subject.CommonName == leaf.DNSNames[0]):
		c.name = leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		c.name = leaf.IPAddresses[0].String()
	}
	if strings.HasPrefix(c.name, "*") {
		c.name = ""
	}
	return c, nil
}

// refresh renews our own certificate if its end is near, and takes what lies in
// the files.
func (c *certificates) refresh(log *slog.Logger) error {
	pair, err := readPair(c.certPath, c.keyPath)
	if c.own && (errors.Is(err, fs.ErrNotExist) || (err == nil && time.Until(pair.Leaf.NotAfter) < renewBefore)) {
		ca, key, caErr := readCA(c.dataDir)
		if caErr != nil {
			return caErr
		}
		names := namesOf(ca)
		if pair != nil { // keep the first name first
			if i := slices.Index(names, pair.Leaf.Subject.CommonName); i > 0 {
				names[0], names[i] = names[i], names[0]
			}
		}
		if err := makeLeaf(c.dataDir, ca, key, names); err != nil {
			return err
		}
		log.Info("relay certificate renewed", "names", strings.Join(names, ","))
		pair, err = readPair(c.certPath, c.keyPath)
	}
	if err != nil {
		return err
	}
	c.current.Store(pair)
	return nil
}

// wrap puts TLS over a listener. HTTP/1.1 alone is offered: WebSockets need it,
// and it costs less for each connection.
func (c *certificates) wrap(l net.Listener) net.Listener {
	return tls.NewListener(l, c.config())
}

func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// keepCertificates looks after the certificate until ctx ends.
func (r *Relay) keepCertificates(ctx context.Context) {
	if r.certs == nil {
		return
	}
	r.certs.keep(ctx, r.log)
}

// keep takes a new certificate within seconds of its being written, and renews
// our own in time, until ctx ends. Connections that are there go on with the one
// that they began with. Two files can't be replaced at once: a pair that doesn't
// fit is looked at again, and until it fits the old one stays.
func (c *certificates) keep(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookAtFiles)
	defer tick.Stop()
	seen, looked, complained := c.stamp(), time.Now(), stamp{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := c.stamp()
		if now == seen && time.Since(looked) < lookAgain {
			continue
		}
		before := c.current.Load()
		if err := c.refresh(log); err != nil {
			if complained != now {
				log.Error("certificate can't be read, the old one stays", "err", err.Error())
			}
			complained = now
			continue
		}
		seen, looked = c.stamp(), time.Now()
		if leaf := c.current.Load().Leaf; !leaf.Equal(before.Leaf) {
			log.Info("certificate replaced", "names", strings.Join(leaf.DNSNames, ","), "until", leaf.NotAfter)
		}
	}
}
