package cli_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/cmd/farhand/cli"
	"farhand/image/disk"
	"farhand/image/fat"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/provision/preseed"
)

// cardImage is a small image with the partition that takes settings.
func cardImage(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"mkfs.vfat", "mcopy"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, tool, err == nil, "an image is made to be flashed")
	}
	dir := t.TempDir()
	tree, a, image := filepath.Join(dir, "tree"), filepath.Join(dir, "a"), filepath.Join(dir, "farhand.img")
	const mib = 1 << 20
	for _, err := range []error{
		os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, "farhand.toml"), []byte("# an example\n"), 0o644),
		disk.MakeFAT(t.Context(), disk.FAT{Bits: 16, Label: layout.AutobootLabel, Size: 16 * mib, Tree: tree, Epoch: time.Unix(1_790_000_000, 0)}, a),
		disk.Write(disk.Plan{Signature: layout.Signature, Partitions: []disk.Partition{
			{Number: 1, Type: 0x0c, Size: 16 * mib, From: a}, {Number: 5, Type: 0x83, Size: mib, Blank: 4096},
		}}, image),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// cardSettings reads back what a card asks for.
func cardSettings(t *testing.T, card string) preseed.Settings {
	t.Helper()
	b, err := os.ReadFile(card)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := table.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	p := tab.Partitions[0]
	v, err := fat.Open(onlyRead{bytes.NewReader(b[p.Start*512 : (p.Start+p.Size)*512])}, p.Size*512)
	if err != nil {
		t.Fatal(err)
	}
	var f preseed.Files
	if f.Preseed, err = v.ReadFile("rpi-preseed.toml"); err != nil {
		t.Fatal(err)
	}
	if f.Farhand, err = v.ReadFile("farhand.toml"); err != nil {
		t.Fatal(err)
	}
	s, items := preseed.Parse(f)
	for _, i := range items {
		if i.Outcome != preseed.Applied {
			t.Errorf("the card's reader says %+v", i)
		}
	}
	return s
}

// fill copies an image, and leaves no room on its first partition.
func fill(t *testing.T, image, to string) {
	t.Helper()
	b, err := os.ReadFile(image)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	tab, err := table.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := tab.Partitions[0]
	v, err := fat.Open(window{f, p.Start * 512}, p.Size*512)
	if err == nil {
		err = v.WriteFile("filler", make([]byte, v.Free()), time.Unix(1_790_000_000, 0))
	}
	if err == nil {
		err = v.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// window is a part of a file.
type window struct {
	f  *os.File
	at int64
}

func (w window) ReadAt(b []byte, off int64) (int, error)  { return w.f.ReadAt(b, w.at+off) }
func (w window) WriteAt(b []byte, off int64) (int, error) { return w.f.WriteAt(b, w.at+off) }

type onlyRead struct{ *bytes.Reader }

func (onlyRead) WriteAt([]byte, int64) (int, error) { return 0, os.ErrPermission }

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQUDZWhs8k/cZcykMkaoX7ZE7DXld8TP79HyddVVTS ann@example"

// A card for a real relay gets the settings that the flags say and a claim key
// that the relay knows, bound to what the flags allow; none is left behind by
// what failed.
func TestFlash(t *testing.T) {
	leak.Check(t)
	image := cardImage(t)
	r, pin := startRelay(t)
	home := t.TempDir()
	t.Chdir(home)
	farhand := func(stdin string, args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{Args: args, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Home: home})
		return code, stdout.String(), stderr.String()
	}
	must := func(stdin string, args ...string) string {
		t.Helper()
		code, out, errs := farhand(stdin, args...)
		if code != 0 {
			t.Fatalf("farhand %s: exit code %d: %s", strings.Join(args, " "), code, errs)
		}
		return out
	}
	must("correct horse battery", "login", r.URL(), "--setup", r.FirstSetup().Link, "--name", "ann", "--passphrase-file", "-", "--ca-sha256", pin)
	if err := os.WriteFile("wifi", []byte("a password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := must("", "flash", image, "card.img", "--name", "greenhouse", "--hostname", "Glass.local", "--user", "ann", "--ssh-key", publicKey,
		"--wifi", "home", "--wifi-password-file", "wifi", "--country", "de", "--timezone", "Europe/Berlin",
		"--capability", "files,hardware_gpio", "--shell", "--root", "/data/work", "--bus", "w1,spi0=off",
		"--forward", "127.0.0.1:80", "--forward", "192.168.1.0/24:443")
	s := cardSettings(t, "card.img")
	f := s.Farhand
	switch {
	case s.Hostname != "glass", s.User == nil || s.User.Name != "ann", !s.SSH.Enabled || !slices.Equal(s.SSH.AuthorizedKeys, []string{publicKey}),
		s.Wifi == nil || string(s.Wifi.SSID) != "home" || s.Wifi.Passphrase != "a password", s.Country != "DE", s.Timezone != "Europe/Berlin":
		t.Errorf("the system's settings: %+v", s)
	case f.Relay != r.URL(), f.CASHA256 != pin, f.Name != "greenhouse", !f.Shell, !slices.Equal(f.Roots, []string{"/data/work"}),
		!slices.Equal(f.Capabilities, []string{"files", "hardware_gpio", "shell", "forward"}), !slices.Equal(f.ForwardAllow, []string{"127.0.0.1:80", "192.168.1.0/24:443"}), !f.Buses["w1"], f.Buses["spi0"], !regexp.MustCompile(`^fh_ck_.{32}`).MatchString(f.ClaimKey):
		t.Errorf("Farhand's settings: %+v", f)
	case !strings.Contains(out, "starts twice"): // for its buses
		t.Errorf("it says of the first start:\n%s", out)
	case len(f.RescuePassphrase) != 12, !strings.Contains(out, f.RescuePassphrase):
		t.Errorf("the rescue network's password is %q:\n%s", f.RescuePassphrase, out)
	case strings.Contains(out, f.ClaimKey), strings.Contains(out, "a password"):
		t.Errorf("it shows a secret:\n%s", out)
	}
	claims := must("", "claim", "list")
	if !strings.Contains(claims, "greenhouse") || !strings.Contains(claims, "files, shell, hardware_gpio") && !strings.Contains(claims, "hardware_gpio") || strings.Count(claims, "\n") != 2 {
		t.Errorf("the relay's claim keys:\n%s", claims)
	}

	// What fails leaves no key behind.
	damaged := filepath.Join(home, "damaged.img.gz")
	if err := os.WriteFile(damaged, []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x02"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := farhand("", "flash", damaged, "other.img"); code != 1 || !strings.Contains(errs, "damaged") {
		t.Errorf("a damaged image: exit code %d: %s", code, errs)
	}
	// This one has no room for the settings, which shows when the key is made.
	full := filepath.Join(home, "full.img")
	fill(t, image, full)
	if code, _, errs := farhand("", "flash", full, "other.img"); code != 1 || !strings.Contains(errs, "file system full") {
		t.Errorf("an image without room: exit code %d: %s", code, errs)
	}
	// And here the image is another than the one that was published.
	if err := os.WriteFile(image+".sha256", []byte(strings.Repeat("0", 64)+"  "+filepath.Base(image)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("card.img")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := farhand("", "flash", image, "card.img", "--yes"); code != 1 || !strings.Contains(errs, "isn't what its checksum says") || !strings.Contains(errs, "nothing was written") {
		t.Errorf("another checksum: exit code %d: %s", code, errs)
	}
	if after, err := os.ReadFile("card.img"); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it was written all the same: %v", err)
	}
	if again := must("", "claim", "list"); strings.Count(again, "\n") != 2 {
		t.Errorf("a key is left behind:\n%s", again)
	}
	sum, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image+".sha256", fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(sum), filepath.Base(image)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := farhand("", "flash", image, "checked.img", "--no-claim"); code != 0 || !strings.Contains(errs, "farhand.img is what farhand.img.sha256 says") {
		t.Errorf("the right checksum: exit code %d: %s", code, errs)
	}
	// Nobody is let in who couldn't be in the end: known before anything is written.
	if code, _, errs := farhand("", "--relay", "https://127.0.0.1:1", "flash", image, "never.img", "--claim"); code == 0 || !strings.Contains(errs, "not logged in") {
		t.Errorf("another relay: exit code %d: %s", code, errs)
	}

	if out := must("", "flash", image, "third.img", "--no-claim", "--user", "ann", "--user-password-file", "wifi"); !strings.Contains(out, "ann can't log in") {
		t.Errorf("a user without SSH:\n%s", out)
	}

	// Without a key, over what is there, as JSON.
	if err := os.Chmod("card.img", 0o644); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Target  string `json:"target"`
		Checked string `json:"sha256_file"`
		ClaimID string `json:"claim_id"`
		Rescue  string `json:"rescue_passphrase"`
	}
	if err := json.Unmarshal([]byte(must("", "flash", image, "card.img", "--no-claim", "--yes", "--json", "--wifi", "0xff01", "--wifi-open", "--country", "DE")), &answer); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat("card.img"); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the card: %v, %v", info.Mode(), err)
	}
	s = cardSettings(t, "card.img")
	if s.Wifi == nil || string(s.Wifi.SSID) != "\xff\x01" || s.Wifi.Passphrase != "" {
		t.Errorf("a network whose name is no text: %+v", s.Wifi)
	}
	if answer.Target != "card.img" || answer.Checked != image+".sha256" || answer.ClaimID != "" || s.Farhand.ClaimKey != "" || s.Farhand.RescuePassphrase != answer.Rescue || s.User != nil || s.Farhand.Shell || s.Farhand.Relay != r.URL() {
		t.Errorf("%+v, %+v", answer, s)
	}
}

// What can't be right is refused before anything is written.
func TestFlashRefused(t *testing.T) {
	image := cardImage(t)
	home := t.TempDir()
	t.Chdir(home)
	for name, text := range map[string]string{"there": "something", "private": "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", "empty": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"card", 2, "an IMAGE and a DEVICE or FILE"},
		{image + " there --no-claim", 2, "--yes"},
		{image + " card --claim", 77, "not logged in"},
		{image + " card --claim --no-claim", 2, "given together"},
		{"none.img card", 1, "no such file"},
		{image + " /dev/null --yes", 1, "no disk"},
		{image + " " + home + " --yes", 1, "neither a file nor a disk"},
		{image + " /dev/farhand-none --yes", 1, "no device"},
		{image + " card --wifi home", 2, "--country"}, // field case 82
		{image + " card --wifi home --country DE", 2, "--wifi-password-file"},
		{image + " card --wifi home --country DE --wifi-password-file empty", 2, "empty"},
		{image + " card --wifi home --country DE --wifi-password-file there --wifi-open", 2, "given together"},
		{image + " card --wifi-hidden", 2, "--wifi SSID"},
		{image + " card --country Germany", 2, "country"},
		{image + " card --country EN", 2, "no country has the code EN"},
		{image + " card --hostname -x-", 2, "--hostname"},
		{image + " " + image + " --yes", 2, "is what is read"},
		{"there card", 1, "no image of farhand's"},
		{image + " card --user ann --ssh-key empty", 2, "no key in it"},
		{image + " card --capability llm_manage", 2, "needs local_llm"},
		{image + " card --ssh-key there", 2, "--user"},
		{image + " card --user ann --ssh-key none", 2, "neither a file nor a public key"},
		{image + " card --user ann --ssh-key private", 2, "private key"},
		{image + " card --capability files,shell", 2, "--shell"},
		{image + " card --capability fly", 2, "no capability"},
		{image + " card --sudo", 2, "--shell"},
		{image + " card --root /proc", 2, "root"},
		{image + " card --root /data/work/a\x01b", 2, "control characters"},
		{image + " card --name \xff", 2, "control characters"},
		{image + " card --bus i2c9", 2, "i2c1"},
		{image + " card --forward everything", 2, "HOST:PORT"},
		{image + " card --forward 127.0.0.1:80 --forward localhost", 2, "HOST:PORT"},
		{image + " card --relay http://127.0.0.1:7443", 2, "--relay https://"},
		{image + " card --bmap none.bmap", 1, "no such file"},
	} {
		var out bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{Args: append([]string{"flash"}, strings.Fields(c.args)...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Home: home})
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", c.args, code, c.code, c.want, out.String())
		}
		if _, err := os.Stat("card"); err == nil {
			t.Fatalf("%s: it wrote", c.args)
		}
	}
	if info, err := os.Stat(image); err != nil || info.Size() < 16<<20 {
		t.Errorf("the image itself was overwritten: %v", err)
	}
	if b, err := os.ReadFile("there"); err != nil || string(b) != "something" {
		t.Errorf("a file was overwritten without a word: %q, %v", b, err)
	}
}
