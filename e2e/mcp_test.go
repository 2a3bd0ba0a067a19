package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/llm/llmtest"
	"farhand/mcp"
	"farhand/wire"
)

// agent is a client of the Model Context Protocol, connected to a server of ours.
type agent struct {
	t       *testing.T
	session *sdk.ClientSession
	schemas map[string]*jsonschema.Resolved // what answers must fit
	names   []string
	called  map[string]bool

	mu       sync.Mutex
	progress []*sdk.ProgressNotificationParams
	changed  chan struct{} // other tools are there
}

// connect makes an agent that speaks over a transport.
func connect(t *testing.T, transport sdk.Transport) *agent {
	t.Helper()
	a := &agent{t: t, called: make(map[string]bool), changed: make(chan struct{}, 10)}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler: func(_ context.Context, _ *sdk.ToolListChangedRequest) { a.changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, q *sdk.ProgressNotificationClientRequest) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.progress = append(a.progress, q.Params)
		},
	})
	session, err := c.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	a.session = session
	a.list()
	return a
}

// list asks which tools there are.
func (a *agent) list() []string {
	a.t.Helper()
	list, err := a.session.ListTools(a.t.Context(), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	a.names, a.schemas = nil, make(map[string]*jsonschema.Resolved)
	for _, tool := range list.Tools {
		a.names = append(a.names, tool.Name)
		raw, err := json.Marshal(tool.OutputSchema)
		if err != nil {
			a.t.Fatal(err)
		}
		schema := parse[jsonschema.Schema](a.t, string(raw))
		if a.schemas[tool.Name], err = schema.Resolve(nil); err != nil {
			a.t.Fatalf("%s: %v", tool.Name, err)
		}
	}
	return a.names
}

// try calls a tool with arguments written as JSON.
func (a *agent) try(name, args string) (*sdk.CallToolResult, string) {
	a.t.Helper()
	a.called[name] = true
	got, err := a.session.CallTool(a.t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	if err != nil {
		a.t.Fatalf("%s %s: %v", name, args, err)
	}
	var text strings.Builder
	for _, c := range got.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	return got, text.String()
}

// call calls a tool that has to succeed: what it answers fits its schema, and has
// a text.
func (a *agent) call(name, args string) (map[string]any, string) {
	a.t.Helper()
	got, text := a.try(name, args)
	if got.IsError {
		a.t.Fatalf("%s %s fails: %s", name, args, text)
	}
	out, ok := got.StructuredContent.(map[string]any)
	if !ok {
		a.t.Fatalf("%s answers %v", name, got.StructuredContent)
	}
	if err := a.schemas[name].Validate(out); err != nil {
		a.t.Errorf("%s answers %v: %v", name, out, err)
	}
	if text == "" {
		a.t.Errorf("%s %s answers without a text", name, args)
	}
	return out, text
}

// fails calls a tool that has to fail with a code and say what to do.
func (a *agent) fails(code wire.Code, hint, name, args string) {
	a.t.Helper()
	got, text := a.try(name, args)
	if !got.IsError || !strings.HasPrefix(text, string(code)) || !strings.Contains(text, hint) || !strings.Contains(text, "\nNext: ") {
		a.t.Errorf("%s %s: %q (error %t), want %s with %q", name, args, text, got.IsError, code, hint)
	}
	if got.StructuredContent != nil {
		a.t.Errorf("%s: a failure with structured content, which clients hold against the schema", name)
	}
}

// inMemory is an agent of a server in this process.
func (b *bench) inMemory(c *client.Client) (*agent, *mcp.Server) {
	b.t.Helper()
	s, err := mcp.New(b.t.Context(), mcp.Config{Client: c, Look: time.Hour, Heartbeat: 50 * time.Millisecond})
	if err != nil {
		b.t.Fatal(err)
	}
	here, there := sdk.NewInMemoryTransports()
	var ended sync.WaitGroup
	ended.Go(func() { s.Run(b.t.Context(), there) }) // ends with the other side
	b.t.Cleanup(func() {
		ended.Wait()
		s.Close()
	})
	return connect(b.t, here), s
}

// Every tool does what it says on the simulated bench, and its answer fits its
// schema.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	journal, entries := b.fakeJournal()
	b.environ = []string{journal}
	b.claim(everything + ",observe")
	a, _ := b.inMemory(b.sdk())
	has := func(text, want string) {
		t.Helper()
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in %q", want, text)
		}
	}

	out, text := a.call("list_machines", `{}`)
	has(text, "bench: online")
	has(fmt.Sprint(out), b.root())
	_, text = a.call("list_devices", `{"family": "gpio"}`)
	has(text, "gpio:pinctrl-bcm2711")

	a.call("write_file", `{"path": "notes/a.txt", "content": "one\ntwo\nthree\n", "create_parents": true}`)
	_, text = a.call("read_file", `{"path": "notes/a.txt"}`)
	has(text, "one\ntwo\nthree\n")
	out, text = a.call("read_file", `{"path": "notes/a.txt", "start_line": 2, "max_lines": 1}`)
	if out["content"] != "two\n" || out["next_line"] != 3.0 {
		t.Errorf("line 2 is %v", out)
	}
	has(text, "start_line 3")
	out, _ = a.call("read_file", `{"path": "notes/a.txt", "offset": 4, "length": 3}`)
	if out["content"] != "two" || out["next_offset"] != 7.0 {
		t.Errorf("bytes 4 to 7 are %v", out)
	}
	a.call("edit_file", `{"path": "notes/a.txt", "edits": [{"old_text": "two", "new_text": "zwei"}, {"old_text": "e\n", "new_text": "e!\n", "replace_all": true}]}`)
	if got := string(b.read(filepath.Join(b.root(), "notes/a.txt"))); got != "one!\nzwei\nthree!\n" {
		t.Errorf("edited, the file is %q", got)
	}
	a.fails(wire.InvalidArgument, "read_file", "edit_file", `{"path": "notes/a.txt", "edits": [{"old_text": "nowhere", "new_text": ""}]}`)
	_, text = a.call("search_files", `{"pattern": "^zw", "path": "`+b.root()+`"}`)
	has(text, "notes/a.txt:2: zwei")
	_, text = a.call("list_files", `{"path": "notes"}`)
	has(text, "a.txt")
	out, _ = a.call("file_info", `{"path": "notes/a.txt"}`)
	if out["kind"] != "file" || out["size_bytes"] != 17.0 {
		t.Errorf("file_info says %v", out)
	}
	a.call("move_file", `{"from": "notes/a.txt", "to": "notes/b.gcode"}`)
	out, text = a.call("copy_file", `{"from": "notes", "to": "copy/of"`+`, "create_parents": true}`)
	if got := string(b.read(filepath.Join(b.root(), "copy/of/b.gcode"))); got != "one!\nzwei\nthree!\n" || out["files"] != 1.0 {
		t.Errorf("copied, the file is %q: %v", got, out)
	}
	has(text, "17 bytes in 1 files")
	out, _ = a.call("copy_file", `{"from": "notes/b.gcode", "to": "copy"}`)
	if out["path"] != "copy/b.gcode" || out["bytes"] != 17.0 {
		t.Errorf("a copy in a directory: %v", out)
	}
	a.fails(wire.PathNotFound, "list_files", "copy_file", `{"from": "nothing", "to": "copy"}`)
	a.call("write_file", `{"path": "raw.bin", "content": "/wA=", "encoding": "base64"}`)
	out, _ = a.call("read_file", `{"path": "raw.bin"}`)
	if out["encoding"] != "base64" || out["content"] != "/wA=" {
		t.Errorf("bytes come as %v", out)
	}
	a.call("delete_file", `{"path": "raw.bin"}`)

	out, text = a.call("run_command", `{"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]}`)
	if out["exit_code"] != 3.0 || out["stdout"] != "out\n" || out["stderr"] != "err\n" {
		t.Errorf("run_command says %v", out)
	}
	has(text, "[exit code 3]")
	_, text = a.call("run_command", `{"command": "pwd", "cwd": "notes"}`)
	has(text, filepath.Join(b.root(), "notes"))

	out, text = a.call("machine_status", `{}`)
	if out["memory_total_bytes"].(float64) <= 0 || out["uptime_seconds"].(float64) <= 0 {
		t.Errorf("machine_status says %v", out)
	}
	has(text, b.root())
	appendLine(t, entries, `{"__REALTIME_TIMESTAMP":"1712345678000000","MESSAGE":"it began","SYSLOG_IDENTIFIER":"sshd","_PID":"7","PRIORITY":"3"}`)
	out, text = a.call("read_logs", `{"unit": "ssh", "priority": "err", "lines": 5}`)
	has(text, "2024-04-05T19:34:38Z sshd: it began")
	if out["next_since"] != "2024-04-05T19:34:38.000001Z" {
		t.Errorf("read_logs says %v", out)
	}
	out, _ = a.call("read_logs", `{"wait_seconds": 30, "until": "beg[ai]n"}`)
	if out["matched"] != true {
		t.Errorf("read_logs says %v", out)
	}
	_, text = a.call("read_logs", `{"wait_seconds": 0.2, "until": "never"}`)
	has(text, "until didn't occur")
	a.fails(wire.InvalidArgument, "", "read_logs", `{"since": "yesterday"}`)
	a.fails(wire.InvalidArgument, "", "read_logs", `{"until": "x"}`)
	out, text = a.call("list_events", `{}`)
	has(text, "machine_online bench")
	seen := fmt.Sprintf(`"after": %q`, out["cursor"])
	_, text = a.call("list_events", `{`+seen+`, "wait_seconds": 0.2}`)
	has(text, "nothing happened")
	waited := make(chan string, 1)
	go func() {
		got, _ := a.session.CallTool(context.Background(), &sdk.CallToolParams{Name: "list_events", Arguments: json.RawMessage(`{` + seen + `, "wait_seconds": 60}`)})
		waited <- got.Content[0].(*sdk.TextContent).Text
	}()
	b.owner.must("grants", "bench", "--remove", "observe") // which was needed above
	if got := <-waited; !strings.Contains(got, "grants_changed bench") {
		t.Errorf("what is waited for is %q", got)
	}
	a.fails(wire.InvalidArgument, "", "list_events", `{"after": "nonsense"}`)

	out, text = a.call("terminal_open", `{"argv": ["sh"], "env": {"PS1": "ready> "}, "until": "ready> "}`)
	has(text, "ready> ")
	terminal := fmt.Sprintf(`"terminal": %q`, out["terminal"])
	out, _ = a.call("terminal_write", `{`+terminal+`, "text": "echo $((6*7)); stty size\n", "until": "\n\\d+ \\d+\n"}`)
	if got := out["output"].(string); !strings.Contains(got, "\n42\n40 120\n") || out["matched"] != true {
		t.Errorf("typed, the terminal says %q", got)
	}
	a.call("terminal_resize", `{`+terminal+`, "columns": 80, "rows": 24}`)
	_, text = a.call("terminal_write", `{`+terminal+`, "text": "sleep 600\n", "wait_seconds": 2}`)
	has(text, "sleep 600")
	a.call("terminal_write", `{`+terminal+`, "text": "\u0003", "until": "ready> $"}`)
	out, _ = a.call("terminal_write", `{`+terminal+`, "text": "stty size; exit 5\n", "until": "no such thing"}`)
	if got := out["output"].(string); !strings.Contains(got, "24 80") || out["exit_code"] != 5.0 || out["running"] != false {
		t.Errorf("at its end the terminal says %v", out)
	}
	_, text = a.call("terminal_read", `{`+terminal+`, "cursor": 0}`)
	has(text, "exit code 5")
	_, text = a.call("terminal_list", `{}`)
	has(text, "ended: ")
	a.fails(wire.InvalidArgument, "", "terminal_read", `{`+terminal+`, "until": "("}`)
	a.call("terminal_close", `{`+terminal+`}`)

	_, text = a.call("gpio_info", `{"lines": ["GPIO17", "pin 13"]}`)
	has(text, "GPIO17")
	a.call("gpio_configure", `{"lines": ["GPIO22"], "direction": "in", "pull": "up"}`)
	a.call("gpio_write", `{"lines": [{"line": "GPIO17", "value": 1}], "on_release": "low"}`)
	_, text = a.call("gpio_read", `{"lines": ["GPIO27", "GPIO17"]}`)
	has(text, "GPIO27=1 GPIO17=1") // wired together
	_, text = a.call("gpio_pwm", `{"line": "GPIO18", "frequency_hz": 50, "duty_percent": 7.5}`)
	has(text, "50 Hz, 7.5 % high")
	a.call("gpio_pwm", `{"line": "GPIO18", "stop": true}`)
	_, text = a.call("gpio_watch", `{"lines": ["GPIO5"], "timeout_seconds": 0.2}`)
	has(text, "ended: timeout")
	out, _ = a.call("release_device", `{"device": "gpio:pinctrl-bcm2711"}`)
	if out["released"] != true {
		t.Errorf("release_device says %v", out)
	}

	_, text = a.call("i2c_scan", `{"device": "i2c:1"}`)
	has(text, "0x76 present")
	_, text = a.call("i2c_transfer", `{"device": "i2c:1", "address": "0x76", "write": "d0", "read": 1}`)
	has(text, "60")
	_, text = a.call("i2c_smbus", `{"device": "i2c:1", "address": "0x0b", "protocol": "read_word_data", "command": 8}`)
	has(text, "2982")
	_, text = a.call("spi_transfer", `{"device": "spi:0.0", "write": "9f", "read": 3}`)
	has(text, "ef 40 14")

	out, _ = a.call("serial_transact", `{"device": "serial:sim-scpi", "text": "*IDN?\n", "until": "\n"}`)
	if out["text"] != "FARHAND,SIM-PSU,000042,1.0\n" || out["complete"] != true {
		t.Errorf("serial_transact says %v", out)
	}
	a.call("serial_write", `{"device": "serial:sim-echo", "hex": "68 69", "hold": true}`)
	_, text = a.call("serial_read", `{"device": "serial:sim-echo", "size": 2}`)
	has(text, "hi")
	_, text = a.call("serial_expect", `{"device": "serial:sim-console", "steps": [{"send": "\n", "expect": ["login: "]}]}`)
	has(text, "login: ")
	a.call("serial_control", `{"device": "serial:sim-echo", "baudrate": 9600}`)
	a.call("release_device", `{"device": "serial:sim-echo"}`)

	_, text = a.call("usb_describe", `{"device": "`+usbEcho+`"}`)
	has(text, "endpoint 0x01 out bulk")
	a.call("usb_send", `{"device": "`+usbEcho+`", "endpoint": "0x01", "hex": "de ad", "hold": true}`)
	_, text = a.call("usb_receive", `{"device": "`+usbEcho+`", "endpoint": "0x81", "size": 64}`)
	has(text, "de ad")
	_, text = a.call("usb_control", `{"device": "`+usbEcho+`", "request_type": "0x80", "request": "0x06", "value": "0x0100", "length": 18}`)
	has(text, "09 12")
	a.call("usb_hid", `{"device": "`+usbEcho+`", "action": "get", "size": 8, "detach_kernel_driver": true}`)
	a.call("usb_reset", `{"device": "`+usbEcho+`"}`)
	a.call("release_device", `{"device": "`+usbEcho+`"}`)

	b.write(filepath.Join(b.root(), "part.gcode"), printable)
	_, text = a.call("printer_status", `{"device": "`+printer+`"}`)
	has(text, "ready")
	out, _ = a.call("printer_upload", `{"device": "`+printer+`", "path": "part.gcode", "select": true}`)
	has(fmt.Sprint(out), "part.gcode")
	_, text = a.call("printer_files", `{"device": "`+printer+`"}`)
	has(text, "part.gcode")
	a.call("printer_temperature", `{"device": "`+printer+`", "targets": {"tool0": 60}}`)
	a.call("printer_move", `{"device": "`+printer+`", "home": ["x", "y"]}`)
	a.call("printer_gcode", `{"device": "`+printer+`", "gcode": ["M104 S0"]}`)
	a.call("printer_job", `{"device": "`+printer+`", "action": "print", "path": "part.gcode"}`)
	a.try("printer_job", `{"device": "`+printer+`", "action": "cancel"}`) // it may be over by now
	a.call("release_device", `{"device": "`+printer+`"}`)
	a.try("printer_delete_file", `{"device": "`+printer+`", "path": "part.gcode"}`)

	for _, name := range a.names {
		if !a.called[name] {
			t.Errorf("no test calls %s", name)
		}
	}
}

// What agents get wrong is told with what to do next.
func TestMCPMistakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	a, _ := b.inMemory(b.sdk())
	for _, c := range []struct {
		code             wire.Code
		hint, tool, args string
	}{
		{wire.InvalidArgument, "schema", "read_file", `{}`},
		{wire.InvalidArgument, "schema", "read_file", `{"path": 5}`},
		{wire.InvalidArgument, "nonsense", "read_file", `{"path": "a", "nonsense": 1}`},
		{wire.InvalidArgument, "schema", "gpio_write", `{"lines": [{"line": "GPIO17", "value": 2}]}`},
		{wire.InvalidArgument, "schema", "serial_read", `{"parity": "strange"}`},
		{wire.InvalidArgument, "schema", "gpio_pwm", `{"line": "GPIO18", "frequency_hz": 50, "duty_percent": 101}`},
		{wire.InvalidArgument, "one of the two", "run_command", `{}`},
		{wire.InvalidArgument, "hexadecimal", "i2c_transfer", `{"device": "i2c:1", "address": "0x76", "write": "zz"}`},
		{wire.MachineNotAttached, "list_machines", "list_files", `{"machine": "elsewhere"}`},
		{wire.PathOutsideAllowedRoot, b.root(), "read_file", `{"path": "/etc/passwd"}`},
		{wire.PathNotFound, "list_files", "read_file", `{"path": "nothing"}`},
		{wire.HardwareNotFound, "list_devices", "serial_read", `{"device": "serial:none"}`},
		{wire.HardwareNotFound, "gpio_info", "gpio_read", `{"lines": ["GPIO99"]}`},
		{wire.HardwareAmbiguous, usbScope, "usb_describe", `{}`},
		{wire.HardwareBusy, "", "i2c_transfer", `{"device": "i2c:1", "address": "0x68", "read": 1}`},
	} {
		a.fails(c.code, c.hint, c.tool, c.args)
	}
	if _, err := a.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "no_such_tool"}); err == nil {
		t.Error("a tool that doesn't exist is called")
	}
}

// Only what is granted has tools, and a change is told.
func TestMCPGrants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,hardware_gpio")
	token := b.newToken("agent", "--capability", "files")
	a, _ := b.inMemory(b.sdk())
	want := func(a *agent, there, missing string) {
		t.Helper()
		if !slices.Contains(a.names, there) || slices.Contains(a.names, missing) {
			t.Errorf("tools are %v, want %s and not %s", a.names, there, missing)
		}
	}
	want(a, "gpio_read", "run_command")
	narrow, _ := b.inMemory(b.sdkWith(token))
	want(narrow, "read_file", "gpio_read")
	want(narrow, "read_file", "list_devices")

	// A capability that is taken away is refused at once, and its tools go.
	b.owner.must("grants", "bench", "--allow", "files,shell")
	a.fails(wire.CapabilityNotGranted, "farhand grants", "gpio_read", `{"lines": ["GPIO17"]}`)
	// What goes and what comes may be told apart.
	for tries := 0; tries < 2 && (slices.Contains(a.names, "gpio_read") || !slices.Contains(a.names, "run_command")); tries++ {
		arrives(t, "the change is told", a.changed)
		a.list()
	}
	want(a, "run_command", "gpio_read")
	if _, text := a.call("run_command", `{"argv": ["echo", "now"]}`); !strings.Contains(text, "now") {
		t.Errorf("run_command says %q", text)
	}
}

// arrives waits for something that has to come.
func arrives(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not in time: %s", what)
	}
}

// Long calls tell that they go on, and a call that is cancelled ends on the
// machine.
func TestMCPProgressAndCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	a, _ := b.inMemory(b.sdk())
	q := &sdk.CallToolParams{Name: "run_command", Arguments: json.RawMessage(`{"argv": ["sleep", "0.4"]}`)}
	q.SetProgressToken("p1")
	if _, err := a.session.CallTool(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	if len(a.progress) == 0 || a.progress[0].ProgressToken != "p1" || !strings.Contains(a.progress[0].Message, "run_command") {
		t.Errorf("progress: %+v", a.progress)
	}
	a.mu.Unlock()

	// The command writes that it runs, and would write that it wasn't stopped.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.session.CallTool(ctx, &sdk.CallToolParams{Name: "run_command",
			Arguments: json.RawMessage(`{"argv": ["sh", "-c", "echo $$ >pid; exec sleep 600"], "timeout_seconds": 600}`)})
		ended <- err
	}()
	pid := 0
	eventually(t, "the command runs", func() error {
		content, err := os.ReadFile(filepath.Join(b.root(), "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled call succeeds")
	}
	eventually(t, "the command is gone", func() error {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			return fmt.Errorf("process %d is there", pid)
		}
		return nil
	})
}

// Devices and files can be read as resources.
func TestMCPResources(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	b.write(filepath.Join(b.root(), "a b.txt"), "hello\n")
	a, _ := b.inMemory(b.sdk())
	read := func(uri string) *sdk.ResourceContents {
		t.Helper()
		got, err := a.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		if err != nil || len(got.Contents) != 1 {
			t.Fatalf("%s: %v %v", uri, got, err)
		}
		return got.Contents[0]
	}
	list, err := a.session.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Resources {
		if got := read(r.URI); !strings.Contains(got.Text, "bench") {
			t.Errorf("%s is %s", r.URI, got.Text)
		}
	}
	if len(list.Resources) != 2 {
		t.Errorf("%d resources", len(list.Resources))
	}
	if got := read("farhand://bench/files/a%20b.txt"); got.Text != "hello\n" || got.MIMEType != "text/plain" {
		t.Errorf("the file is %+v", got)
	}
	if got := read("farhand://bench/files/" + b.root()); !strings.Contains(got.Text, "a b.txt") {
		t.Errorf("the directory is %s", got.Text)
	}
	for _, uri := range []string{"farhand://bench/files/none", "farhand://other/devices", "farhand://bench/files//etc/passwd", "farhand://"} {
		if _, err := a.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s can be read", uri)
		}
	}
	done, err := a.session.Complete(t.Context(), &sdk.CompleteParams{
		Ref:      &sdk.CompleteReference{Type: "ref/resource", URI: "farhand://{machine}/files/{+path}"},
		Argument: sdk.CompleteParamsArgument{Name: "path", Value: "a"}, Context: &sdk.CompleteContext{Arguments: map[string]string{"machine": "bench"}},
	})
	if err != nil || !slices.Equal(done.Completion.Values, []string{"a b.txt"}) {
		t.Errorf("completion: %+v, %v", done, err)
	}
}

// farhand mcp is a server that an agent starts.
func TestMCPCommand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	cmd := exec.Command(program("farhand"), "mcp", "--read-only")
	cmd.Env = b.env(b.owner.env...)
	a := connect(t, &sdk.CommandTransport{Command: cmd})
	if _, text := a.call("list_machines", `{}`); !strings.Contains(text, "bench: online") {
		t.Errorf("list_machines says %q", text)
	}
	if slices.Contains(a.names, "write_file") || !slices.Contains(a.names, "read_file") {
		t.Errorf("with --read-only the tools are %v", a.names)
	}
}

// An agent touches the files of its own machine in the directory that was opened,
// and nowhere else.
func TestMCPLocalRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	open := filepath.Join(b.dir, "open")
	for _, dir := range []string{open, filepath.Join(open, "tree"), filepath.Join(open, "tree/deep")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	for name, content := range map[string]string{"tree/a": "one", "tree/deep/b": "two", "big": string(big)} {
		b.write(filepath.Join(open, name), content)
	}
	b.write(filepath.Join(b.dir, "secret"), "not yours")
	for name, to := range map[string]string{"out": b.dir, "tree/secret": "../../secret", "abs": filepath.Join(b.dir, "secret")} {
		if err := os.Symlink(to, filepath.Join(open, name)); err != nil {
			t.Fatal(err)
		}
	}
	start := func(args ...string) *agent {
		t.Helper()
		cmd := exec.Command(program("farhand"), append([]string{"mcp"}, args...)...)
		cmd.Env, cmd.Dir = b.env(b.owner.env...), b.here()
		return connect(t, &sdk.CommandTransport{Command: cmd})
	}
	if a := start(); slices.Contains(a.names, "upload_file") || slices.Contains(a.names, "download_file") || !slices.Contains(a.names, "copy_file") {
		t.Errorf("without --local-root the tools are %v", a.names)
	}
	if a := start("--local-root", open, "--read-only"); slices.Contains(a.names, "upload_file") || slices.Contains(a.names, "copy_file") {
		t.Errorf("with --read-only the tools are %v", a.names)
	}
	a := start("--local-root", open)
	out, _ := a.call("upload_file", `{"from": "big", "to": "sub/big", "create_parents": true}`)
	if got := b.read(filepath.Join(b.root(), "sub/big")); !bytes.Equal(got, big) || out["bytes"] != float64(len(big)) || len(out["sha256"].(string)) != 64 {
		t.Errorf("%d bytes came: %v", len(got), out)
	}
	out, text := a.call("upload_file", `{"from": "tree", "to": "."}`)
	if got := string(b.read(filepath.Join(b.root(), "tree/deep/b"))); got != "two" || out["files"] != 2.0 || !strings.Contains(text, "left out secret") {
		t.Errorf("%q, %v", got, out)
	}
	out, _ = a.call("upload_file", `{"from": "tree", "to": "."}`)
	if out["unchanged"] != 2.0 {
		t.Errorf("once more: %v", out)
	}
	a.call("download_file", `{"path": "sub/big", "to": "came/big", "create_parents": true}`)
	if got := b.read(filepath.Join(open, "came/big")); !bytes.Equal(got, big) {
		t.Errorf("%d bytes came back", len(got))
	}
	out, _ = a.call("download_file", `{"path": "tree", "to": "came"}`)
	if got := string(b.read(filepath.Join(open, "came/tree/a"))); got != "one" || out["files"] != 2.0 {
		t.Errorf("%q, %v", got, out)
	}
	for _, args := range []string{`{"path": "tree/a", "to": "../a"}`, `{"path": "tree/a", "to": "out/a"}`, `{"path": "tree/a", "to": "/tmp/a"}`, `{"path": "tree", "to": "out/tree"}`, `{"path": "tree/a", "to": "abs"}`} {
		if got, text := a.try("download_file", args); !got.IsError || !strings.HasPrefix(text, "PATH_OUTSIDE_ALLOWED_ROOT") && !strings.HasPrefix(text, "PATH_NOT_FOUND") {
			t.Errorf("%s: %s", args, text)
		}
	}
	for _, args := range []string{`{"from": "../secret", "to": "x"}`, `{"from": "out/secret", "to": "x"}`, `{"from": "abs", "to": "x"}`, `{"from": "/etc/passwd", "to": "x"}`, `{"from": "out", "to": "x"}`, `{"from": "tree/secret", "to": "x"}`} {
		got, text := a.try("upload_file", args)
		if !got.IsError || !strings.HasPrefix(text, "PATH_OUTSIDE_ALLOWED_ROOT") && !strings.HasPrefix(text, "PATH_NOT_FOUND") || strings.Contains(text, b.dir) {
			t.Errorf("%s: %s", args, text)
		}
	}
	if _, err := os.Stat(filepath.Join(b.root(), "x")); err == nil {
		t.Error("something that isn't in the directory was copied")
	}
	if got := string(b.read(filepath.Join(b.dir, "secret"))); got != "not yours" {
		t.Errorf("outside there is %q now", got)
	}
	if r := b.owner.run("mcp", "--local-root", filepath.Join(b.dir, "nowhere")); r.code == 0 || !strings.Contains(r.stderr, "--local-root") {
		t.Errorf("a directory that there isn't: %+v", r)
	}
}

// The machine's own model is a tool, too.
func TestMCPModel(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "tiny:1b")
	b := newBench(t)
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n", server.URL)
	b.claim("local_llm")
	a, _ := b.inMemory(b.sdk())
	if _, text := a.call("list_models", `{}`); text != "tiny:1b" {
		t.Errorf("list_models says %q", text)
	}
	if _, text := a.call("ask_model", `{"messages": [{"role": "user", "content": "Hello"}]}`); text != llmtest.Sentence {
		t.Errorf("ask_model says %q", text)
	}
	a.fails(wire.ModelNotAvailable, "list_models", "ask_model", `{"model": "other:1b", "messages": [{"role": "user", "content": "Hello"}]}`)
}

// Of private files an agent gets what they are like, and what the model says.
func TestMCPPrivacy(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "cloud-big:1b", "tiny:1b")
	b := newBench(t)
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n[privacy]\nprivate = [%q]\n", server.URL, filepath.Join(b.root(), "vault"))
	private(b)
	b.claim("files,local_llm")
	a, _ := b.inMemory(b.sdk())
	a.fails(wire.PrivacyModeBlocked, "file_stub", "read_file", `{"path": "vault/people-of-erika.csv"}`)
	if _, text := a.call("file_stub", `{"path": "vault/people-of-erika.csv"}`); !strings.Contains(text, "43 bytes, csv") || strings.Contains(text, "erika") {
		t.Errorf("file_stub says %q", text)
	}
	if _, text := a.call("ask_files", `{"paths": ["vault/people-of-erika.csv"], "task": "How many?"}`); text != llmtest.Sentence {
		t.Errorf("ask_files says %q", text)
	}
	a.fails(wire.ModelNotAvailable, "list_models", "ask_files", `{"paths": ["vault/people-of-erika.csv"], "task": "x", "model": "cloud-big:1b"}`)
}

// An agent that opens one terminal after the other and closes none can go on doing
// so, and finds again what the first of them said.
func TestMCPManyTerminals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	a, _ := b.inMemory(b.sdk())
	var first string
	for i := range 40 {
		out, text := a.call("terminal_open", fmt.Sprintf(`{"argv": ["echo", "number %d"], "until": "no such thing"}`, i))
		if !strings.Contains(text, fmt.Sprint("number ", i)) || out["running"] != false {
			t.Fatalf("%d: %v", i, out)
		}
		if i == 0 {
			first = fmt.Sprint(out["terminal"])
		}
	}
	out, _ := a.call("terminal_read", fmt.Sprintf(`{"terminal": %q}`, first))
	if out["output"] != "" || out["running"] != false {
		t.Errorf("what was told is told again: %v", out)
	}
	out, _ = a.call("terminal_read", fmt.Sprintf(`{"terminal": %q, "cursor": 0}`, first))
	if !strings.Contains(fmt.Sprint(out["output"]), "number 0") {
		t.Errorf("what it said is gone: %v", out)
	}
}
