package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/internal/testenv"
)

// ClientsVar names the directory in which the official clients are installed:
// make mcp-test does that and sets it.
const ClientsVar = "FARHAND_MCP_CLIENTS"

// stop is one call of the tour.
type stop struct {
	Tool  string          `json:"tool"`
	Args  json.RawMessage `json:"arguments"`
	Fails bool            `json:"fails,omitempty"`
	want  string          // what its text says
	group bool            // the Inspector makes this one, for its group
}

// tour is a call of every tool, in an order in which each does something.
func tour() []stop {
	call := func(tool, args, want string) stop { return stop{Tool: tool, Args: json.RawMessage(args), want: want} }
	group := func(s stop) stop {
		s.group = true
		return s
	}
	failing := func(s stop) stop {
		s.Fails = true
		return s
	}
	return []stop{
		group(call("list_machines", `{}`, "bench: online")),
		group(call("list_devices", `{"machine": "bench", "family": "usb"}`, usbEcho)),
		group(call("write_file", `{"path": "tour/part.gcode", "content": "G28\n", "create_parents": true}`, "wrote 4 bytes")),
		group(call("read_file", `{"path": "tour/part.gcode"}`, "G28")),
		group(call("copy_file", `{"from": "tour/part.gcode", "to": "tour/b.gcode"}`, "4 bytes in 1 files")),
		failing(call("read_file", `{"path": "nothing"}`, "PATH_NOT_FOUND")),
		call("edit_file", `{"path": "tour/part.gcode", "edits": [{"old_text": "G28", "new_text": "G28 X"}]}`, "1 replacements"),
		call("list_files", `{"path": "tour"}`, "part.gcode"),
		call("file_info", `{"path": "tour/part.gcode"}`, "file, 6 bytes"),
		call("search_files", `{"pattern": "G2."}`, "part.gcode:1"),
		call("move_file", `{"from": "tour/part.gcode", "to": "tour/a.gcode"}`, "moved"),
		group(call("machine_status", `{}`, "memory: ")),
		group(call("read_logs", `{"lines": 5}`, "it began")),
		group(call("list_events", `{}`, "machine_online bench")),
		group(call("run_command", `{"argv": ["echo", "far away"]}`, "far away")),
		call("terminal_list", `{}`, "no terminals"),
		call("terminal_open", `{"argv": ["cat"], "wait_seconds": 0.1}`, "terminal "),
		call("terminal_write", `{"terminal": "$terminal", "text": "far\n", "until": "far\nfar\n"}`, "far"),
		call("terminal_read", `{"terminal": "$terminal", "wait_seconds": 0.1}`, "nothing yet"),
		call("terminal_resize", `{"terminal": "$terminal", "columns": 80, "rows": 24}`, "80 columns"),
		call("terminal_close", `{"terminal": "$terminal"}`, "closed"),
		group(call("gpio_info", `{"lines": ["GPIO17"]}`, "GPIO17")),
		call("gpio_configure", `{"lines": ["GPIO22"], "pull": "up"}`, "GPIO22 is an input"),
		call("gpio_write", `{"lines": [{"line": "GPIO17", "value": 1}]}`, "GPIO17=1"),
		call("gpio_read", `{"lines": ["GPIO27"]}`, "GPIO27=1"),
		call("gpio_pwm", `{"line": "GPIO18", "frequency_hz": 50, "duty_percent": 10}`, "50 Hz"),
		call("gpio_watch", `{"lines": ["GPIO5"], "timeout_seconds": 0.1}`, "timeout"),
		call("release_device", `{"device": "gpio:pinctrl-bcm2711"}`, "released"),
		group(call("i2c_scan", `{"device": "i2c:1"}`, "0x76 present")),
		call("i2c_transfer", `{"device": "i2c:1", "address": "0x76", "write": "d0", "read": 1}`, "60"),
		call("i2c_smbus", `{"device": "i2c:1", "address": "0x0b", "protocol": "read_word_data", "command": 8}`, "2982"),
		group(call("spi_transfer", `{"device": "spi:0.0", "write": "9f", "read": 3}`, "ef 40 14")),
		group(call("serial_transact", `{"device": "serial:sim-scpi", "text": "*IDN?\n", "until": "\n"}`, "SIM-PSU")),
		call("serial_write", `{"device": "serial:sim-echo", "text": "hi", "hold": true}`, "2 bytes"),
		call("serial_read", `{"device": "serial:sim-echo", "size": 2}`, "hi"),
		call("serial_expect", `{"device": "serial:sim-console", "steps": [{"send": "\n", "expect": ["login: "]}]}`, "done"),
		call("serial_control", `{"device": "serial:sim-echo", "baudrate": 9600}`, "9600 bit/s"),
		group(call("usb_describe", `{"device": "`+usbEcho+`"}`, "endpoint 0x81")),
		call("usb_send", `{"device": "`+usbEcho+`", "endpoint": "0x01", "hex": "de ad", "hold": true}`, "2 bytes"),
		call("usb_receive", `{"device": "`+usbEcho+`", "endpoint": "0x81", "size": 64}`, "de ad"),
		call("usb_control", `{"device": "`+usbEcho+`", "request_type": "0x80", "request": "0x06", "value": "0x0100", "length": 18}`, "09 12"),
		call("usb_hid", `{"device": "`+usbEcho+`", "action": "get", "size": 8, "detach_kernel_driver": true}`, ""),
		call("usb_reset", `{"device": "`+usbEcho+`"}`, "reset"),
		group(call("printer_status", `{"device": "`+printer+`"}`, "ready")),
		call("printer_upload", `{"device": "`+printer+`", "path": "tour/a.gcode"}`, "sent as"),
		call("printer_files", `{"device": "`+printer+`"}`, "a.gcode"),
		call("printer_temperature", `{"device": "`+printer+`", "targets": {"bed": 40}}`, "bed to 40.0"),
		call("printer_move", `{"device": "`+printer+`", "home": ["x"]}`, "took the command"),
		call("printer_gcode", `{"device": "`+printer+`", "gcode": ["M140 S0"]}`, "1 lines"),
		failing(call("printer_job", `{"device": "`+printer+`", "action": "resume"}`, "")),
		call("printer_delete_file", `{"device": "`+printer+`", "path": "a.gcode"}`, "deleted"),
		call("delete_file", `{"path": "tour", "recursive": true}`, "deleted"),
	}
}

// clients are the official clients of the protocol, and what they run under.
type clients struct {
	t         *testing.T
	dir, node string
}

func officialClients(t *testing.T) clients {
	t.Helper()
	dir := os.Getenv(ClientsVar)
	testenv.Need(t, "mcp-clients", dir != "", "make mcp-test installs them")
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	node := filepath.Join(dir, "node_modules", "node-linux-"+arch, "bin", "node")
	if _, err := os.Stat(node); err != nil {
		if node, err = exec.LookPath("node"); err != nil {
			t.Fatal("there is no node")
		}
	}
	return clients{t, dir, node}
}

// bench is one whose machine has everything, a journal too.
func (c clients) bench() *bench {
	c.t.Helper()
	b := newBench(c.t)
	journal, entries := b.fakeJournal()
	appendLine(c.t, entries, `{"__REALTIME_TIMESTAMP":"1712345678000000","MESSAGE":"it began","SYSLOG_IDENTIFIER":"sshd"}`)
	b.environ = []string{journal}
	b.claim(everything + ",observe")
	return b
}

// inspect runs the Inspector's command line and gives the JSON that it prints.
func (c clients) inspect(b *bench, args ...string) map[string]any {
	c.t.Helper()
	script := filepath.Join(c.dir, "node_modules", "@modelcontextprotocol", "inspector", "clients", "cli", "build", "index.js")
	// It starts the server with no more of the environment than it is told to.
	server := filepath.Join(b.dir, "serve-mcp")
	b.write(server, "#!/bin/sh\nexec "+program("farhand")+" mcp --local-root "+b.here()+"\n")
	if err := os.Chmod(server, 0o700); err != nil {
		c.t.Fatal(err)
	}
	start := []string{script, server, "-e", "FARHAND_URL=" + b.url, "-e", "FARHAND_TOKEN=" + b.owner.secret()}
	cmd := exec.CommandContext(c.t.Context(), c.node, append(start, args...)...)
	cmd.Env, cmd.Dir = b.env(), b.here()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("inspector %q: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	return parse[map[string]any](c.t, stdout.String())
}

// The official Inspector, in its command-line mode, lists everything, finds nothing
// wrong with the schemas, and calls a tool of every group.
func TestMCPInspector(t *testing.T) {
	c := officialClients(t)
	b := c.bench()
	list := c.inspect(b, "--method", "tools/list", "--strict")
	if tools, _ := list["tools"].([]any); len(tools) < 40 {
		t.Errorf("tools/list: %d tools", len(tools))
	}
	b.write(filepath.Join(b.here(), "note"), "from here\n")
	stops := append(tour(),
		stop{Tool: "upload_file", Args: json.RawMessage(`{"from": "note", "to": "note"}`), want: "uploaded: 10 bytes", group: true},
		stop{Tool: "download_file", Args: json.RawMessage(`{"path": "note", "to": "again"}`), want: "downloaded: 10 bytes", group: true})
	for _, s := range stops {
		if !s.group {
			continue
		}
		args := []string{"--method", "tools/call", "--tool-name", s.Tool}
		for name, value := range parse[map[string]json.RawMessage](t, string(s.Args)) {
			text := string(value)
			if json.Unmarshal(value, &text) != nil { // not a string: as JSON
				text = string(value)
			}
			args = append(args, "--tool-arg", name+"="+text)
		}
		got := c.inspect(b, args...)
		if text, err := json.Marshal(got["content"]); err != nil || got["isError"] == true || !strings.Contains(string(text), s.want) {
			t.Errorf("%s says %s, want %q", s.Tool, text, s.want)
		}
	}
	if got := c.inspect(b, "--method", "resources/list"); got["resources"] == nil {
		t.Errorf("resources/list: %v", got)
	}
	if got := c.inspect(b, "--method", "resources/read", "--uri", "farhand://bench/devices"); got["contents"] == nil {
		t.Errorf("resources/read: %v", got)
	}
}

// The official TypeScript client logs in over HTTP by OAuth, and calls every tool.
func TestMCPTypeScript(t *testing.T) {
	c := officialClients(t)
	b := c.bench()
	calls, err := json.Marshal(tour())
	if err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(b.dir, "calls.json"), string(calls))
	cmd := exec.CommandContext(t.Context(), c.node, filepath.Join(c.dir, "client.mjs"), b.url+"/mcp", filepath.Join(b.dir, "calls.json"))
	cmd.Dir = c.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer limit.Stop()

	type line struct {
		Authorize   string
		Tools       []string
		Tool, Text  string
		Done        bool
		Progress    int
		Refreshable bool
		Templates   int
		Resources   []string
	}
	var last line
	said := map[string]string{}
	for scan := bufio.NewScanner(stdout); scan.Scan(); {
		last = parse[line](t, scan.Text())
		switch {
		case last.Authorize != "":
			b.authorise(last.Authorize)
		case last.Tool != "":
			said[last.Tool] += last.Text
		case last.Tools != nil:
			for _, name := range last.Tools {
				if !slices.ContainsFunc(tour(), func(s stop) bool { return s.Tool == name }) {
					t.Errorf("nobody calls %s", name)
				}
			}
			if last.Templates != 2 || len(last.Resources) != 2 {
				t.Errorf("%d templates, resources %v", last.Templates, last.Resources)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !last.Done || !last.Refreshable {
		t.Fatalf("the client: %v, at last %+v\n%s", err, last, stderr.String())
	}
	for _, s := range tour() {
		if !strings.Contains(said[s.Tool], s.want) {
			t.Errorf("%s says %q, want %q", s.Tool, said[s.Tool], s.want)
		}
	}
}

// authorise lets a program in that has sent the owner's browser to an address, with
// everything that there is, and lets the browser go back to it.
func (b *bench) authorise(address string) {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	at := b.signedIn()
	form := at.get(u.RequestURI())
	p := at.submit(form, "/auth/authorize", url.Values{"cap": strings.Split(everything+",observe", ","), "for": {"1d"}, "decision": {"approve"}})
	if p.status != 200 || !strings.Contains(p.body, "Back to the program") {
		b.t.Fatalf("authorising gives %d at %s: %s", p.status, p.at, p.body)
	}
}
