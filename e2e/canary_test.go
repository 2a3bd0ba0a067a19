package e2e

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/internal/canary"
	"farhand/llm/llmtest"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// canaries are the private files of a machine, and what is looked for in all that
// leaves it.
type canaries struct {
	t *testing.T
	b *bench

	name    map[string]string // what is told nowhere, by what it is
	private map[string]string // files: content by path below the root
	links   map[string]string // links there: target by path
	sums    map[string]string // digests of the files, which are values, too

	// changing is held by whoever may change what is private; then it is planted
	// again. Real names that are secret are used in between alone: where there is
	// nothing, an answer may have the words of the question.
	changing sync.RWMutex
}

// control is a secret of public files. That it is found shows that the others
// would be.
const control = "control"

// plant makes the files. Rows, keys, names and bodies are random.
func plant(b *bench, rng *rand.Rand) *canaries {
	c := &canaries{t: b.t, b: b, name: make(map[string]string), sums: make(map[string]string)}
	for _, what := range []string{control, "body", "inner body", "first row", "second row", "key", "value", "file name", "directory name", "link name", "secret's name",
		"secret's body", "zipped", "wide", "hidden", "single", "named value", "named text", "large", "journal", "local service", "only"} {
		c.name[what] = canary.Text(rng, 24)
	}
	c.name["eight bytes"] = canary.Text(rng, 8)
	n := c.name
	filler := strings.Repeat("nothing of interest stands here. ", 60)
	var large strings.Builder
	for range 40 {
		fmt.Fprintf(&large, "%s%s\n", strings.Repeat(filler, 8), n["large"])
	}
	c.private = map[string]string{
		"vault/body.txt":                              filler + n["body"] + filler,
		"vault/people.csv":                            n["first row"] + ",41\n" + n["second row"] + ",42\nshort,43\n",
		"vault/data.json":                             fmt.Sprintf(`{"%s":["%s",1,{"deep":true}]}`, n["key"], n["value"]),
		"vault/" + n["file name"] + ".txt":            "an ordinary text",
		"vault/" + n["directory name"] + "/inner.txt": n["inner body"],
		"vault/eight":                                 n["eight bytes"],
		"vault/data.gz":                               string(packed(gzipped, filler+n["zipped"])),
		"vault/wide.txt":                              "\xff\xfe" + string(wide(n["wide"], false)),
		"vault/large.bin":                             large.String(),
		"vault/.hidden":                               n["hidden"],
		"notes/" + n["secret's name"] + ".secret":     n["secret's body"],
		"notes/deep/a.secret":                         n["secret's body"],
		"deep/inner/only.txt":                         n["only"],
		"single.txt":                                  n["single"],
		"named/list.csv":                              "who;amount\n" + n["named value"] + ";1\n" + n["named text"] + ";2\n",
	}
	c.links = map[string]string{
		"vault/" + n["link name"]: "body.txt",
		"public/to-body":          "../vault/body.txt",
		"public/to-vault":         "../vault",
		"public/to-name":          filepath.Join(b.root(), "vault", n["file name"]+".txt"),
		"public/to-secret":        "../notes/" + n["secret's name"] + ".secret",
	}
	for path, content := range c.private {
		sum := sha256.Sum256([]byte(content))
		c.sums["the digest of "+path] = string(sum[:])
	}
	c.replant()
	c.plantControl()
	return c
}

func (c *canaries) at(path string) string { return filepath.Join(c.b.root(), path) }

// replant puts everything back as it was.
func (c *canaries) replant() {
	c.t.Helper()
	for path, content := range c.private {
		got, err := os.ReadFile(c.at(path))
		if err == nil && string(got) == content {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(c.at(path)), 0o700); err != nil {
			c.t.Error(err)
		}
		_ = os.RemoveAll(c.at(path)) // a directory, if anything
		if err := os.WriteFile(c.at(path), []byte(content), 0o600); err != nil {
			c.t.Error(err)
		}
	}
	for path, target := range c.links {
		if got, err := os.Readlink(c.at(path)); err == nil && got == target {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(c.at(path)), 0o700); err != nil {
			c.t.Error(err)
		}
		_ = os.RemoveAll(c.at(path))
		if err := os.Symlink(target, c.at(path)); err != nil {
			c.t.Error(err)
		}
	}
	hard, body := c.at("public/hard"), c.at("vault/body.txt")
	if !sameFile(hard, body) {
		_ = os.RemoveAll(hard)
		if err := os.Link(body, hard); err != nil {
			c.t.Error(err)
		}
	}
}

func sameFile(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

// plantControl makes public files that have the control in every form.
func (c *canaries) plantControl() {
	secret := c.name[control]
	text := strings.Repeat("public text around it ", 10) + secret
	for name, content := range map[string]string{
		"raw": secret + "~", "hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"utf-16le": string(wide(secret, false)), "utf-16be": string(wide(secret, true)),
		"gzip": string(packed(gzipped, text)), "zlib": string(packed(zlibbed, text)), "deflate": string(packed(deflated, text)),
		"eight": secret[:8], "named-" + secret: "x",
	} {
		if err := os.MkdirAll(c.at("control"), 0o700); err != nil {
			c.t.Fatal(err)
		}
		c.b.write(c.at("control/"+name), content)
	}
}

func wide(s string, big bool) []byte {
	var b []byte
	for _, c := range []byte(s) {
		if b = append(b, c, 0); big {
			b[len(b)-2], b[len(b)-1] = 0, c
		}
	}
	return b
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
func zlibbed(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
func deflated(w io.Writer) io.WriteCloser {
	z, err := flate.NewWriter(w, flate.BestCompression)
	if err != nil {
		panic(err) // there is such a level
	}
	return z
}

func packed(to func(io.Writer) io.WriteCloser, s string) []byte {
	var b bytes.Buffer
	w := to(&b)
	_, _ = io.WriteString(w, s) // into memory
	_ = w.Close()
	return b.Bytes()
}

// secrets are what is told nowhere.
func (c *canaries) secrets() *canary.Set {
	all := maps.Clone(c.sums)
	maps.Copy(all, c.name)
	delete(all, control)
	return canary.New(all)
}

// surround has a journal and a server on this machine that tell what is private; it
// is the server's address.
func (c *canaries) surround() (service string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s\n", c.name["local service"]) }))
	c.t.Cleanup(server.Close)
	journal, entries := c.b.fakeJournal()
	appendLine(c.t, entries, fmt.Sprintf(`{"__REALTIME_TIMESTAMP":"1712345678000000","MESSAGE":%q}`, c.name["journal"]))
	c.b.environ = []string{journal}
	return server.Listener.Addr().String()
}

// config is the machine's: everything on that there is, and these files private.
func (c *canaries) config(model, service string) string {
	root := c.b.root()
	_, port, _ := strings.Cut(service, ":")
	return fmt.Sprintf("[llm]\nenabled = true\nurl = %q\ncontext_tokens = 8192\n[forward]\nallow = [\"127.0.0.1:%s\", \"localhost:%s\", \"[::1]:%s\", \"0.0.0.0:%s\"]\n", model, port, port, port, port) +
		fmt.Sprintf("[privacy]\nprivate = [%s]\nanswer_chars = 65536\n", quoted([]string{root + "/vault", root + "/**/*.secret", root + "/single.txt", root + "/deep/inner/only.txt", root + "/named;schema=named"}))
}

// canaryModels are what llmtest has: one that answers, and one each that leaks what
// it is told in its answer, in its thoughts, and in its errors.
var canaryModels = []string{"tiny:1b", "echo:1b", "think:1b", "quote:1b", "die:1b"}

// Nothing of a private file leaves the machine but in the answer of a turn of its
// own model: not its content, not its first row, not a key, not its name, in no
// form, whatever two sessions of one token ask for, and whatever else may want to
// tell of it.
func TestPrivateFilesStay(t *testing.T) {
	t.Parallel()
	extensions := slices.Clone(families)
	for _, m := range wire.Methods() {
		if c := m.Capability; m.Extension && c != wire.HardwareFamily && !extensions.Has(c) {
			extensions = append(extensions, c)
		}
	}
	probePrivateFiles(t, extensions, []int{1000, 1000, 100}, allOutcomes)
}

// To a platform that knows nothing of privacy, as the AutoGPT platform doesn't,
// they are files that can't be read.
func TestPrivateFilesStayFromAnyPlatform(t *testing.T) {
	t.Parallel()
	probePrivateFiles(t, nil, []int{200, 200, 30}, plainOutcomes)
}

func probePrivateFiles(t *testing.T, extensions wire.Capabilities, probes []int, outcomes [][2]string) {
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("FARHAND_TEST_SEED=%d", seed)
	cloud := newCloud(t)
	cloud.Extensions, cloud.MaxConcurrent = extensions, 8
	if extensions.Has(wire.Grants) {
		cloud.Ack = func(_ *shimtest.Socket, ack map[string]any) bool { // two sessions of one token
			ack["grants"] = map[string]any{"owner": "owner-1", "holder": "token-1", "token": nil, "session": nil}
			return true
		}
	}
	b := cloud.bench()
	tap := tapped(t, cloud.url)
	b.url = tap.url
	c := plant(b, rand.New(rand.NewPCG(seed, 0)))
	service := c.surround()
	b.tables += c.config(llmtest.Start(t, canaryModels...).URL, service)
	b.configure()
	b.mustd(cloud.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(cloud)
	one, _ := p.open("one")
	two, _ := p.open("two")
	c.checkControl(one)

	vault, err := os.Stat(c.at("vault"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(service, ":")
	shared := newShared(port)
	stop := make(chan struct{})
	var swapping, probing sync.WaitGroup
	swapping.Go(func() { c.swap(stop) })
	total := 0
	for i, x := range []*prober{newProber(c, shared, "one", one, seed+1), newProber(c, shared, "two", two, seed+2), newProber(c, shared, "control", p.control, seed+3)} {
		total += probes[i]
		probing.Go(func() { x.run(probes[i]) })
	}
	probing.Wait()
	close(stop)
	swapping.Wait()
	shared.check(t, total, outcomes)

	if now, err := os.Stat(c.at("vault")); err != nil || !os.SameFile(now, vault) {
		t.Errorf("the private directory is another: %v", err)
	}
	c.searchElsewhere()
	if answered := c.search(tap); answered == 0 && extensions.Has(wire.Privacy) {
		t.Error("no turn has answered with what it was told")
	}
	b.audited()
}

// checkControl reads the public files, and their names, in every way: what is
// looked for is found.
func (c *canaries) checkControl(s *shimtest.Socket) {
	set := canary.New(map[string]string{control: c.name[control]})
	find := func(what, form string, e wire.Envelope) {
		c.t.Helper()
		hits := append(set.Find(e.Payload), set.Find(e.Data)...)
		if !slices.ContainsFunc(hits, func(h canary.Hit) bool { return h.Form == form }) {
			c.t.Errorf("%s isn't found as %s in %s %.300s, but %v", what, form, e.Type, e.Payload, hits)
		}
	}
	read := func(name, encoding string, offset int) wire.Envelope {
		return s.Call(wire.TFileRead, map[string]any{"path": "control/" + name, "encoding": encoding, "offset": offset})
	}
	for _, name := range []string{"raw", "hex", "HEX"} {
		find("a text", name, read(name, "utf-8", 0))
	}
	for offset := range 3 {
		find("a file from its byte on", "base64", read("raw", "base64", offset))
	}
	find("eight bytes", "raw", read("eight", "utf-8", 0))
	find("a name", "raw", s.Call(wire.TFileList, map[string]any{"path": "control"}))
	read("named-"+c.name[control], "utf-8", 0) // which is on the record
	find("wide text as text", "json, utf-16le", read("utf-16le", "utf-8", 0))
	for form, name := range map[string]string{
		"base64, utf-16le": "utf-16le", "base64, utf-16be": "utf-16be", "base64, gzip, raw": "gzip", "base64, zlib, raw": "zlib", "base64, deflate, raw": "deflate",
	} {
		find("a file", form, read(name, "base64", 0))
	}
	if !s.Granted.Has(wire.Transfer) {
		return
	}
	for form, name := range map[string]string{
		"raw": "eight", "utf-16le": "utf-16le", "utf-16be": "utf-16be", "gzip, raw": "gzip", "zlib, raw": "zlib", "deflate, raw": "deflate",
	} {
		find("what is attached", form, s.Call(wire.TTransferRead, map[string]any{"path": "control/" + name, "offset": 0, "length": 4096}))
	}
}

// swap changes, all the time, what stands under public names: a public file or
// directory, and a link to a private one.
func (c *canaries) swap(stop <-chan struct{}) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	steps := []func(temp string) error{
		func(temp string) error { return os.WriteFile(temp, []byte("a public text"), 0o600) },
		func(temp string) error { return os.Symlink("../vault/body.txt", temp) },
		func(temp string) error { return os.Link(c.at("vault/large.bin"), temp) },
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-again.C:
		}
		temp := c.at("public/.swapping")
		_ = os.RemoveAll(temp)
		if err := steps[i%len(steps)](temp); err == nil { // what it links to may be away just now
			_ = os.Rename(temp, c.at("public/swap"))
		}
		_ = os.RemoveAll(c.at("public/swapped"))
		if i%2 == 0 {
			_ = os.Symlink("../vault", c.at("public/swapped"))
		} else {
			_ = os.MkdirAll(c.at("public/swapped"), 0o700)
			_ = os.WriteFile(c.at("public/swapped/body.txt"), []byte("a public text"), 0o600)
		}
	}
}

// searchElsewhere looks for copies on the machine: private content in what isn't
// private.
func (c *canaries) searchElsewhere() {
	c.t.Helper()
	set := c.secrets()
	c.eachFile(c.b.root(), func(path, rel string) {
		_, private := c.private[rel]
		if private || strings.HasPrefix(rel, "vault/") || strings.HasPrefix(rel, "named/") || strings.HasSuffix(rel, ".secret") ||
			sameFile(path, c.at("vault/body.txt")) || sameFile(path, c.at("vault/large.bin")) {
			return
		}
		if hits := set.Find(c.b.read(path)); len(hits) > 0 {
			c.t.Errorf("the public file %s has %v", rel, hits)
		}
	})
}

// searchCopies looks for private content, and names, in what was copied from the
// machine.
func (c *canaries) searchCopies(dir string) {
	c.t.Helper()
	set := c.secrets()
	c.eachFile(dir, func(path, rel string) {
		if hits := append(set.Find(c.b.read(path)), set.Find([]byte(rel))...); len(hits) > 0 {
			c.t.Errorf("the copy %s has %v", rel, hits)
		}
	})
}

func (c *canaries) eachFile(dir string, f func(path, rel string)) {
	c.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path) // it lies below
			f(path, rel)
		}
		return err
	})
	if err != nil {
		c.t.Error(err)
	}
}

// search looks at all that left the machine, and at what it says of itself. It
// answers how many windows there were in answers of turns, where they may be.
func (c *canaries) search(tap *wiretap) (answered int) {
	c.t.Helper()
	sentences, raw, err := tap.said()
	if err != nil {
		c.t.Fatal(err)
	}
	secrets, public := c.secrets(), canary.New(map[string]string{control: c.name[control]})
	found, bytes := 0, 0
	report := func(what string, hits []canary.Hit, data []byte) {
		if found += len(hits); len(hits) > 0 && found < 20 {
			c.t.Errorf("%s has %v: %.400q", what, hits, data)
		}
	}
	seen := false
	for _, s := range sentences {
		bytes += len(s.data)
		hits := secrets.Find(s.data)
		seen = seen || len(public.Find(s.data)) > 0
		if s.typ == wire.TLLMTurnChunk || s.typ == wire.TLLMTurnResponse {
			answered += len(hits)
			// What the model thinks is no answer; it thinks in hexadecimal.
			hits = slices.DeleteFunc(hits, func(h canary.Hit) bool { return !strings.Contains(h.Form, "hex") })
		}
		report(s.what, hits, s.data)
	}
	for i, b := range raw {
		report(fmt.Sprintf("connection %d", i), secrets.Find(b), nil)
	}
	if !seen {
		c.t.Error("the control isn't found in what left the machine")
	}
	c.t.Logf("%d messages of %d bytes on %d connections; %d windows in answers of turns", len(sentences), bytes, len(raw), answered)

	local := map[string]string{"what the daemon writes": c.b.daemon.out.String(), "the metrics": c.metrics()}
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"doctor"}, {"doctor", "--json"}, {"audit", "tail", "-n", "3000"}} {
		r := c.b.farhandd("", args...)
		local["farhandd "+strings.Join(args, " ")] = r.stdout + r.stderr
	}
	logs, err := filepath.Glob(filepath.Join(c.b.stateDir(), "audit*"))
	if err != nil || len(logs) == 0 {
		c.t.Fatalf("no audit log: %v", err)
	}
	seen = false
	for _, name := range logs {
		if info, err := os.Stat(name); err != nil || info.IsDir() || strings.HasSuffix(name, ".key") {
			continue
		}
		content := string(c.b.read(name))
		local[filepath.Base(name)] = content
		seen = seen || len(public.Find([]byte(content))) > 0
	}
	if !seen {
		c.t.Error("the control isn't found in the audit log")
	}
	for what, text := range local {
		if text == "" {
			c.t.Errorf("%s is empty", what)
		}
		for line := range strings.Lines(text) {
			report(what, secrets.Find([]byte(line)), []byte(line))
		}
	}
	return answered
}

// metrics is what the daemon's socket tells a scraper.
func (c *canaries) metrics() string {
	local := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.b.stateDir(), "farhandd.sock"))
	}}}
	return scraped(c.t, local, "http://farhandd/metrics")
}
