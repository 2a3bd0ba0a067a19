package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"farhand/cmd/farhand/cli"
	"farhand/image/disk"
	"farhand/image/layout"
	"farhand/internal/testenv"
	"farhand/llm/llmtest"
)

// form is how somebody looks at what the command says.
type form struct {
	name    string
	columns int // of the terminal; 0: a pipe
	noColor bool
}

var forms = []form{{name: "narrow", columns: 40}, {name: "plain", columns: 100, noColor: true}, {name: "piped"}}

// line is a command line and what is to be seen of it.
type line struct {
	typed string // as for a shell, with single quotes; {…} stands for what fill knows
	says  string // a pattern that fits what comes; empty: nothing has to come
	code  int
	stdin string
	// data says that what comes is what was asked for, as it is: as wide as it is,
	// with whatever is in it.
	data bool
	// until ends what goes on for ever, once this pattern has come.
	until string
	// bar says that it takes long enough for a bar, as its clock has it.
	bar bool
	// answers is typed on a terminal that asks.
	answers string
}

// scenes are all verbs. The lines of a scene are run one after another, in one form
// after another.
var scenes = [][]line{
	// Machines and who may use them.
	{
		{typed: "machines", says: "bench"}, {typed: "machines bench", says: `calls itself +bench`}, {typed: "devices bench", says: "serial:sim-echo"},
		{typed: "devices bench --watch", says: "i2c:1", until: "spi:0.1"},
		{typed: "label bench garden rack=2", says: "garden"}, {typed: "groups", says: "garden"},
		{typed: "default bench", says: "bench"}, {typed: "default", says: "bench"},
		{typed: "whoami", says: "ann"}, {typed: "version", says: "protocol"},
		{typed: "grants bench", says: "you allow"}, {typed: "grants bench --add observe --add-device 'gpio:*;lines=GPIO17,GPIO27;ops=GPIO_GET,GPIO_WATCH' --all-devices", says: "given together", code: 2},
		{typed: "grants bench --add observe --all-devices", says: "observe"},
		{typed: "events", says: "machine online"}, {typed: "events -f", says: "machine online", until: "online"},
	},
	{
		{typed: "token create --name t-{form} --machine bench --capability files --expires 30d", says: "shown this once"},
		{typed: "token list", says: "t-{form}"}, {typed: "token revoke t-{form}"},
		{typed: "claim create --name c-{form} --allow files", says: "shown this once"},
		{typed: "claim list", says: "c-{form}"}, {typed: "claim revoke c-{form}"},
		{typed: "approve {code} --name m-{form}", says: "is let in", answers: "y\n"}, {typed: "approve {code} --deny --yes", says: "turned away"},
		{typed: "approve ABCD-EFGH", says: "an hour", code: 1},
		{typed: "revoke m-{form} --yes", says: "is shut out"},
		{typed: "login {url} --name ann --passphrase-file {dir}/passphrase --config {here}/{form}.json", says: "Signed in to"},
		{typed: "logout --config {here}/{form}.json", says: "Logged out"},
	},
	// Commands and terminals.
	{
		{typed: "exec bench -- sh -c 'echo out; echo err >&2'", says: "out", data: true}, {typed: "exec bench -- sh -c 'exit 3'", code: 3},
		{typed: "exec bench --stdin -- cat", stdin: "handed on", says: "handed on", data: true},
		{typed: "exec bench -- sh -c 'kill -9 $$'", code: 137},
		{typed: "exec --group garden -- echo hello", says: "bench: hello"}, {typed: "exec --all --timeout 20s -- echo hello", says: "1 of 2 succeeded", code: 255},
		{typed: "shell bench -- sh -c 'printf \"\\033[31mred\"'", says: "red", data: true},
		{typed: "shell bench -- sleep 1000", stdin: "\x1d", says: `Come\s+back\s+with`, code: 0},
		{typed: "terminals bench", says: "runs"}, {typed: "terminals bench --all", says: `ended\s+by\s+signal\s+9`}, {typed: "terminals close bench last"},
		{typed: "forward bench 0:127.0.0.1:1", says: "leads to", until: "leads to"},
		{typed: "logs bench -n 5", says: "sshd"}, {typed: "logs bench -f", says: "sshd", until: "ssh2"},
		{typed: "top bench --once", says: "memory"}, {typed: "top bench --interval 500ms --count 1", says: "memory"},
		{typed: "mcp", stdin: `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", says: `"id":1`, until: `"id":1`, code: 130, data: true},
		{typed: "sessions", says: "SESSION"}, {typed: "sessions list", says: "SESSION"}, {typed: "sessions close {session}"},
		{typed: "audit verify bench", says: "ok"}, {typed: "audit verify --relay", says: "whole"}, {typed: "audit --relay", says: "own login"},
	},
	// Files.
	{
		{typed: "put {here}/large bench:large-{form}", bar: true}, {typed: "put {here}/tree bench:tree-{form}", says: "2 files"},
		{typed: "put - bench:typed", stdin: "typed"}, {typed: "put {here}/large bench:no/such/", says: "-p makes", code: 1},
		{typed: "get bench:large-{form} {here}/back-{form}", bar: true}, {typed: "get bench:tree-{form} {here}/tree-{form}", says: "2 files"},
		{typed: "cp bench:large-{form} oven:large-{form}", bar: true}, {typed: "cp bench:tree-{form} oven:tree-{form}", says: "2 files"},
		{typed: "ls bench:", says: "typed"}, {typed: "ls -lR bench:tree-{form}", says: "file"}, {typed: "stat bench:typed", says: "5 bytes"},
		{typed: "cat bench:typed", says: "typed", data: true}, {typed: "mv bench:typed bench:moved-{form}"},
		{typed: "rm bench:moved-{form}"}, {typed: "rm bench:tree-{form}", says: "NOT_EMPTY", code: 1}, {typed: "rm -r bench:tree-{form}"},
	},
	// What is wired to a machine.
	{
		{typed: "gpio get bench GPIO17 GPIO27", says: "GPIO27"}, {typed: "gpio set bench GPIO17=on", says: "GPIO17"},
		{typed: "gpio info bench", says: "GPIO17"}, {typed: "gpio pinout bench --levels", says: "SDA1"}, {typed: "gpio pinout --board 'Raspberry Pi 5' --functions", says: "ALT0"},
		{typed: "gpio watch bench GPIO27", says: "GPIO27", until: "GPIO27"}, {typed: "gpio watch bench GPIO27 --log", says: "GPIO27", until: "GPIO27"},
		{typed: "gpio pwm bench GPIO18 --frequency 50 --duty 7.5%", says: "frequency"}, {typed: "release bench gpio:pinctrl-bcm2711"},
		{typed: "i2c scan bench i2c:1", says: "rtc-ds1307"}, {typed: "i2c write bench i2c:1 0x76 f4 27"}, {typed: "i2c read bench i2c:1 0x50 0000 -n 20 --hex", says: "ffff", data: true},
		{typed: "i2c transfer bench i2c:1 0x50 w:0000 r:20 --hex", says: "ffff", data: true}, {typed: "i2c smbus bench i2c:1 0x0b read_word_data 8", says: "0xba6"},
		{typed: "spi transfer bench spi:0.0 9f -n 3 --hex", says: "ef"},
	},
	{
		{typed: "serial list bench", says: "sim-scpi"}, {typed: "serial write bench serial:sim-echo 'hello\\n' --hold"},
		{typed: "serial read bench serial:sim-echo --until '\\n' --timeout 5s", says: "hello"}, {typed: "serial control bench serial:sim-echo", says: "no modem lines", code: 1},
		{typed: "serial release bench serial:sim-echo"},
		{typed: "serial transact bench serial:sim-scpi '*IDN?\\n' --until '\\n'", says: "FARHAND"},
		{typed: "serial transact bench serial:sim-scpi '*IDN?\\n' --until never --timeout 300ms", says: "did not come", code: 1},
		{typed: "serial expect bench serial:sim-console 'send:\\n' 'expect:login: '", says: "step 1", data: true},
		{typed: "serial watch bench serial:sim-console --from 0 --count 5 --hex", says: "00000000  "},
	},
	{
		{typed: "usb list bench", says: "SIM-SCOPE"}, {typed: "usb describe bench 1209:0001", says: "endpoint"},
		{typed: "usb control bench 1209:0001 0x40 1 --data beef"}, {typed: "usb control bench 1209:0001 0xc0 1 --length 2 --hex", says: "beef"},
		{typed: "usb send bench 1209:0001 -i 0 -e 1 --text 'twenty characters long' --hold"}, {typed: "usb receive bench 1209:0001 -i 0 -e 0x81 --hex", says: "7477656e", data: true},
		{typed: "usb receive bench 1209:0001 -i 0 -e 0x81 --timeout 200ms", says: `Time\s+ran\s+out`, code: 1},
		{typed: "usb send bench 1209:0001 -i 0 -e 1 --text 'twenty characters long' --hold"}, {typed: "usb watch bench 1209:0001 -i 0 -e 0x81 --count 1", says: "74 77 65 6e"},
		{typed: "usb hid set bench 1209:0001 010203 -i 1 --detach"}, {typed: "usb hid get bench 1209:0001 -i 1 --detach --hex", says: "0"},
		{typed: "usb reset bench 1209:0001"}, {typed: "release bench usb:1209:0001-SIM-ECHO"},
	},
	{
		{typed: "print status bench sim-i3", says: "ready"}, {typed: "print upload bench sim-i3 {here}/part.gcode --name {form}.gcode", says: "is on the printer", bar: true},
		{typed: "print files bench sim-i3", says: "{form}.gcode"}, {typed: "print start bench sim-i3 --file {form}.gcode", says: "printing"},
		{typed: "print watch bench sim-i3 --count 1", says: "printing"},
		{typed: "print pause bench sim-i3", says: "paus"}, {typed: "print resume bench sim-i3", says: "printing"}, {typed: "print cancel bench sim-i3", says: "{form}|ready"},
		{typed: "print temp bench sim-i3 tool0=50", says: "50"}, {typed: "print move bench sim-i3 --home all"}, {typed: "print gcode bench sim-i3 G28"},
		{typed: "print files bench sim-i3 --delete {form}.gcode", says: "deleted"}, {typed: "print join bench sim-i3", says: "farhand:", code: 1},
		{typed: "release bench printer:sim-i3"},
	},
	// Models, private files, the appliance.
	{
		{typed: "llm models oven", says: "tiny:1b"}, {typed: "llm ps oven", says: "ollama"}, {typed: "llm pull oven new-{form}:2b", says: "is there", bar: true},
		{typed: "llm rm oven new-{form}:2b"}, {typed: "llm chat oven --model tiny:1b -- Hello", says: `\w`, data: true}, {typed: "llm bench oven --model tiny:1b", says: "100"},
		{typed: "llm serve oven --listen 127.0.0.1:0", says: "/v1", until: "until Ctrl-C|OpenAI"},
		{typed: "llm install oven --from {archive}", says: `^Reading \S+ … Its SHA-256 is \S+ ollama 0.17.4 runs.$`}, {typed: "llm uninstall oven"},
		{typed: "stub oven:vault/list.csv", says: "csv"}, {typed: "ask oven --file vault/list.csv --model tiny:1b -- How many?", says: `\w`, data: true},
		{typed: "cat oven:vault/list.csv", says: "farhand stub", code: 1},
		{typed: "settings bench", says: "farhand-cd12ef"},
		{typed: "flash {image} {here}/{form}.img --yes --no-claim --relay https://relay.example.org", says: "holds the image", bar: true},
	},
	// What needs no relay.
	{
		{typed: "help exit-codes", says: "interrupted"}, {typed: "help gpio watch", says: "edges"}, {typed: "exit-codes --help", says: "interrupted"},
		{typed: "completion bash", says: "bash", data: true}, {typed: "completion zsh", says: "zsh", data: true},
		{typed: "completion fish", says: "fish", data: true}, {typed: "completion powershell", says: "farhand", data: true},
		{typed: "machnes", says: "is it machines", code: 2},
	},
}

// Every verb can be used on a terminal of 40 columns, without colours, and by
// programs.
func TestForms(t *testing.T) {
	t.Parallel()
	f := newFormBench(t)
	used := make(map[string]bool)
	for _, scene := range scenes {
		for _, l := range scene {
			used[l.typed] = true
		}
		for _, look := range forms {
			for _, l := range scene {
				f.check(look, l)
			}
		}
	}
	// No verb is forgotten, and the help of each is one of the things to look at.
	for _, verb := range f.verbs() {
		known := false
		for typed := range used {
			known = known || strings.HasPrefix(typed+" ", verb+" ")
		}
		if !known {
			t.Errorf("nothing runs farhand %s: it needs a line in a scene", verb)
		}
		for _, look := range forms {
			f.check(look, line{typed: verb + " --help", says: "Usage:|exit code|done"})
		}
	}
}

// formBench has two machines with something of everything.
type formBench struct {
	*bench
	words map[string]string
	asked int // how many machines have asked to be let in
}

func newFormBench(t *testing.T) *formBench {
	for _, tool := range []string{"mkfs.vfat", "mcopy"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, tool, err == nil, "an image is made to be flashed")
	}
	server := llmtest.Start(t, "tiny:1b")
	b := newBench(t)
	path, entries := b.fakeJournal()
	appendLine(t, entries, `{"__REALTIME_TIMESTAMP":"1712345678000000","MESSAGE":"Accepted publickey for pi from 192.168.178.20 port 50022 ssh2","SYSLOG_IDENTIFIER":"sshd","_PID":"7","PRIORITY":"3"}`)
	b.environ = []string{path}
	b.provisioned()
	ordinary := b.tables
	b.tables += "[forward]\nallow = [\"127.0.0.1:*\"]\n"
	b.claim(everything + ",observe,forward")
	// What is private ends shell and logs, so it is on a machine of its own.
	oven := &bench{t: t, dir: filepath.Join(b.dir, "oven"), name: "oven", url: b.url, listen: b.listen, owner: b.owner}
	oven.roots = []string{oven.root()}
	for _, dir := range []string{oven.dir, oven.root(), oven.here(), filepath.Join(oven.dir, "home"), filepath.Join(oven.root(), "vault"), filepath.Join(b.here(), "tree")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	oven.write(filepath.Join(oven.root(), "vault/list.csv"), "name,age\nErika,67\n")
	oven.appliance()
	oven.tables = ordinary + fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n[privacy]\nprivate = [%q]\n", server.URL, filepath.Join(oven.root(), "vault"))
	oven.claim("files,local_llm,llm_manage")

	b.write(filepath.Join(b.here(), "large"), string(payload(1, 6<<20)))
	b.write(filepath.Join(b.here(), "tree/a file with a name"), "a")
	b.write(filepath.Join(b.here(), "tree/b"), "b")
	b.write(filepath.Join(b.here(), "part.gcode"), printable+strings.Repeat("; filler of a job that takes a while\n", 20000))
	archive, _ := ollamaArchive(t, runtime.GOARCH)
	return &formBench{bench: b, words: map[string]string{
		"here": b.here(), "dir": b.dir, "url": b.url, "archive": archive, "image": smallImage(t),
	}}
}

// smallImage is an image with the partition that takes settings.
func smallImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tree, boot, image := filepath.Join(dir, "tree"), filepath.Join(dir, "boot"), filepath.Join(dir, "farhand.img")
	const mib = 1 << 20
	for _, err := range []error{
		os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, "farhand.toml"), []byte("# an example\n"), 0o644),
		disk.MakeFAT(t.Context(), disk.FAT{Bits: 16, Label: layout.AutobootLabel, Size: 16 * mib, Tree: tree, Epoch: time.Unix(1_790_000_000, 0)}, boot),
		disk.Write(disk.Plan{Signature: layout.Signature, Partitions: []disk.Partition{
			{Number: 1, Type: 0x0c, Size: 16 * mib, From: boot}, {Number: 5, Type: 0x83, Size: mib, Blank: 4096},
		}}, image),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// fill puts in what a line has left open.
func (f *formBench) fill(look form, text string) string {
	f.t.Helper()
	return regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(text, func(word string) string {
		switch word = strings.Trim(word, "{}"); word {
		case "form":
			return look.name
		case "code":
			return f.code()
		case "session":
			list := parse[struct {
				Sessions []struct {
					ID string `json:"session_id"`
				} `json:"sessions"`
			}](f.t, f.owner.must("sessions", "--json"))
			if len(list.Sessions) == 0 || list.Sessions[0].ID == "" {
				f.t.Fatalf("no session is open: %+v", list)
			}
			return list.Sessions[0].ID
		}
		if f.words[word] == "" {
			f.t.Fatalf("{%s} is unknown", word)
		}
		return f.words[word]
	})
}

// code is that of a machine that asks to be let in.
func (f *formBench) code() string {
	f.t.Helper()
	f.asked++
	resp, err := http.PostForm(f.url+"/api/oauth/device_authorization", url.Values{
		"client_id": {"autogpt-local-executor"}, "machine_id": {fmt.Sprint("asking-", f.asked)}, "display_name": {"A machine that asks to be let in"},
		"capabilities": {"files shell hardware_gpio"}, "board": {"Raspberry Pi 5 Model B Rev 1.0"}, "serial_suffix": {"c0de"},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		UserCode string `json:"user_code"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.UserCode == "" {
		f.t.Fatalf("a machine that asks is answered with %d %+v, %v", resp.StatusCode, answer, err)
	}
	return answer.UserCode
}

// escape is a control sequence, and painted one that colours.
var (
	escape  = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)
	painted = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	drawn   = regexp.MustCompile(`\[[=>-]+\]`)
)

// check runs a line in a form and looks at what comes.
func (f *formBench) check(look form, l line) {
	f.t.Helper()
	typed, want := f.fill(look, l.typed), regexp.MustCompile(f.fill(look, l.says))
	code, text := f.use(look, l, typed)
	wrong := func(format string, args ...any) {
		f.t.Helper()
		f.t.Errorf("%s, farhand %s: %s\n%s", look.name, typed, fmt.Sprintf(format, args...), text)
	}
	plain := escape.ReplaceAllString(text, "")
	words := strings.Join(strings.Fields(plain), " ")
	switch {
	case code != l.code:
		wrong("exit code %d, want %d", code, l.code)
	case !want.MatchString(words) && !want.MatchString(plain):
		wrong("it doesn't say %q", l.says)
	case l.bar && drawn.MatchString(plain) != (look.columns > 0):
		wrong("a bar: %t", look.columns == 0)
	case l.data:
	case look.columns == 0 && strings.ContainsAny(text, "\x1b\r"):
		wrong("in a pipe it steers a terminal: %q", text)
	case look.noColor && painted.MatchString(text):
		wrong("it has colours: %q", text)
	case strings.Contains(plain, "\x1b"):
		wrong("it has other escape sequences: %q", text)
	case look.columns == 40:
		if wide := tooWide(plain, strings.HasSuffix(typed, "--help") || strings.HasPrefix(typed, "help ")); wide != "" {
			wrong("a line of %d columns: %q", utf8.RuneCountInString(wide), wide)
		}
	}
}

// tooWide is a line that is wider than the narrow terminal. A word that is wider
// stays whole, and so do the examples of help, so that they can be copied.
func tooWide(plain string, help bool) string {
	example := false
	for _, line := range strings.FieldsFunc(plain, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if !strings.HasPrefix(line, " ") {
			example = help && line == "Examples:"
		}
		line = strings.TrimRight(line, " ")
		if utf8.RuneCountInString(line) > 40 && !example && strings.Contains(strings.TrimSpace(line), " ") {
			return line
		}
	}
	return ""
}

// use runs the command in this process, which the race detector watches, and is
// its exit code and all that it says.
func (f *formBench) use(look form, l line, typed string) (code int, text string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	said := &heard{}
	stdin := io.Reader(strings.NewReader(l.stdin))
	if l.until != "" {
		said.pattern, said.then = regexp.MustCompile(l.until), cancel
		stdin = io.MultiReader(stdin, blocked{ctx})
	}
	vars := map[string]string{"TERM": "xterm-256color", "PATH": os.Getenv("PATH")}
	for _, pair := range f.owner.env {
		name, value, _ := strings.Cut(pair, "=")
		vars[name] = value
	}
	if look.noColor {
		vars["NO_COLOR"] = "1"
	}
	env := cli.Env{
		Args: shellWords(typed), Stdin: stdin, Stdout: said, Stderr: said, Home: filepath.Join(f.dir, "home"),
		Getenv: func(name string) string { return vars[name] },
	}
	if l.bar { // a bar comes after a second
		var mu sync.Mutex
		begun, asked := time.Now(), time.Duration(0)
		env.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return begun.Add(asked * 700 * time.Millisecond)
		}
	}
	if look.columns == 0 {
		code = cli.Run(ctx, env)
		return code, said.text()
	}
	person, tty, err := pty.Open()
	if err == nil {
		err = pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: uint16(look.columns)})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	env.Stdout, env.Stderr = tty, tty
	if l.answers != "" {
		env.Stdin = tty
		said.pattern, said.then = regexp.MustCompile(`\[y/N\] $`), func() { _, _ = io.WriteString(person, l.answers) } // else it waits in vain
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(said, person) // ends with EIO, when nobody holds the other end
	}()
	code = cli.Run(ctx, env)
	tty.Close()
	<-done
	person.Close()
	return code, strings.ReplaceAll(said.text(), "\r\n", "\n")
}

// blocked is input that nobody types.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}

// heard is what was said; then is done once a pattern has come.
type heard struct {
	mu      sync.Mutex
	all     bytes.Buffer
	pattern *regexp.Regexp // nil: none
	then    func()
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.Write(b)
	if h.pattern != nil && h.pattern.Match(h.all.Bytes()) {
		h.pattern = nil
		h.then()
	}
	return len(b), nil
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all.String()
}

// shellWords splits a command line as a shell does, with single quotes.
func shellWords(text string) []string {
	var words []string
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// verbs are all commands that there are, by what help lists.
func (f *formBench) verbs() []string {
	f.t.Helper()
	var all []string
	listed := regexp.MustCompile(`(?m)^  (\S+) `)
	var visit func(path string)
	visit = func(path string) {
		code, help := f.use(form{}, line{}, path+" --help")
		if code != 0 {
			f.t.Fatalf("farhand %s --help gives %d: %s", path, code, help)
		}
		for block := range strings.SplitSeq(help, "\n\n") {
			title, list, _ := strings.Cut(block, "\n")
			if !strings.HasSuffix(title, ":") || strings.HasPrefix(title, " ") || strings.Contains(title, "lags:") || title == "Usage:" || title == "Examples:" || strings.HasPrefix(title, "Additional help") {
				continue
			}
			for _, m := range listed.FindAllStringSubmatch(list, -1) {
				if verb := strings.TrimSpace(path + " " + m[1]); m[1] != "farhand" {
					all = append(all, verb)
					visit(verb)
				}
			}
		}
	}
	visit("")
	if len(all) < 90 {
		f.t.Fatalf("help lists only %d commands: %q", len(all), all)
	}
	return all
}
