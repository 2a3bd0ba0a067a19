package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"farhand/shim/shimtest"
	"farhand/wire"
)

// shared is what the probers of a machine know together, as those of one token do.
type shared struct {
	service string // port of something on this machine that tells a private file

	mu       sync.Mutex
	aliases  []string            // paths as lists told them
	stubs    map[string][]string // by session
	streams  []string
	refs     [][2]string               // browse and directory
	outcomes map[string]map[string]int // by request, how often which answer
}

func newShared(service string) *shared {
	return &shared{service: service, stubs: make(map[string][]string), outcomes: make(map[string]map[string]int)}
}

// note keeps what an answer has that may be of use.
func (h *shared) note(session string, q probe, e wire.Envelope) {
	outcome := string(e.Type)
	var v map[string]any
	_ = json.Unmarshal(e.Payload, &v)
	if e.Type == wire.TError {
		outcome = fmt.Sprint(v["code"])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outcomes[q.what()] == nil {
		h.outcomes[q.what()] = make(map[string]int)
	}
	h.outcomes[q.what()][outcome]++
	if id, ok := v["stub_id"].(string); ok {
		h.stubs[session] = append(h.stubs[session], id)
	}
	if id, ok := v["stream"].(string); ok {
		h.streams = append(h.streams, id)
	}
	entries, _ := v["entries"].([]any)
	for _, x := range entries {
		entry, _ := x.(map[string]any)
		path, _ := entry["path"].(string)
		if name, _ := entry["name"].(string); strings.HasPrefix(name, "private-") && len(h.aliases) < 1000 {
			if path == "" {
				path = filepath.Join(fmt.Sprint(q.payload["path"]), name)
			}
			h.aliases = append(h.aliases, path)
		}
		if ref, ok := entry["directory_ref"].(string); ok {
			h.refs = append(h.refs, [2]string{fmt.Sprint(v["browse_id"]), ref})
		}
	}
}

// check says whether the probes were worth something: there were so many, and these
// requests had, among others, these answers.
func (h *shared) check(t *testing.T, least int, wanted [][2]string) {
	t.Helper()
	total := 0
	for _, what := range slices.Sorted(maps.Keys(h.outcomes)) {
		t.Logf("%-28s %v", what, h.outcomes[what])
		for _, n := range h.outcomes[what] {
			total += n
		}
	}
	if total < least {
		t.Errorf("there were only %d operations", total)
	}
	for _, want := range wanted {
		if h.outcomes[want[0]][want[1]] == 0 {
			t.Errorf("of %s none was answered with %s: %v", want[0], want[1], h.outcomes[want[0]])
		}
	}
	if len(h.aliases) == 0 {
		t.Error("no list told an alias")
	}
}

// What must be among the answers to the probes, without which they showed little:
// of a platform that grants the protocol alone, and of one that grants all there is.
var (
	plainOutcomes = [][2]string{
		{"FILE_READ", "PRIVACY_MODE_BLOCKED"}, {"FILE_READ", "FILE_CONTENTS"}, {"FILE_LIST", "FILE_LIST_RESPONSE"}, {"FILE_STAT", "FILE_STAT_RESPONSE"},
		{"FILE_WRITE", "ACK"}, {"FILE_DELETE", "ACK"}, {"FILE_MOVE", "PRIVACY_MODE_BLOCKED"}, {"EXECUTE_COMMAND", "CAPABILITY_NOT_GRANTED"}, // it isn't even offered
	}
	allOutcomes = append(slices.Clone(plainOutcomes), [][2]string{
		{"FILE_READ stub", "FILE_CONTENTS"}, {"FILE_MOVE", "ACK"}, {"TRANSFER_READ", "PRIVACY_MODE_BLOCKED"}, {"TRANSFER_READ", "TRANSFER_DATA"},
		{"TRANSFER_OPEN", "TRANSFER_OPENED"}, {"TRANSFER_OPEN", "PRIVACY_MODE_BLOCKED"}, {"TRANSFER_COMMIT", "TRANSFER_COMMITTED"},
		{"TERMINAL_OPEN", "CAPABILITY_NOT_GRANTED"}, {"LOGS_REQUEST", "PRIVACY_MODE_BLOCKED"}, {"FORWARD_OPEN", "FORWARD_OPENED"},
		{"HARDWARE_OP PRINTER_UPLOAD", "PRIVACY_MODE_BLOCKED"}, {"LOCAL_LLM_TURN", "LOCAL_LLM_TURN_RESPONSE"}, {"LOCAL_LLM_TURN", "STUB_STALE"},
	}...)
)

// probe is one attempt.
type probe struct {
	typ     wire.Type
	payload map[string]any
	data    []byte
	// private says that an answer other than ERROR would be content: it is about a
	// private file, whatever happens meanwhile.
	private bool
	changes bool // what is private; nobody uses secret names meanwhile
	// empty says that nothing may be listed.
	empty bool
}

// what names the kind of probe in the record of outcomes.
func (q probe) what() string {
	switch {
	case q.typ == wire.THardwareOp:
		return fmt.Sprint(q.typ, " ", q.payload["op"])
	case q.payload["mode"] == "stub":
		return string(q.typ) + " stub"
	}
	return string(q.typ)
}

// prober is one session that tries.
type prober struct {
	c     *canaries
	h     *shared
	name  string
	s     *shimtest.Socket
	rng   *rand.Rand
	kinds []func() probe

	transfers []string // that were opened
	whole     []string // that have all of their bytes
}

// transferSize is how long a file is that is sent in more than one message.
const transferSize = 100

func newProber(c *canaries, h *shared, name string, s *shimtest.Socket, seed uint64) *prober {
	p := &prober{c: c, h: h, name: name, s: s, rng: rand.New(rand.NewPCG(seed, 1))}
	add := func(n int, f func() probe) {
		for range n {
			p.kinds = append(p.kinds, f)
		}
	}
	if name == "control" {
		add(6, p.browse)
		add(2, p.attach)
		add(1, p.askMachine)
		add(1, p.nonsense)
		return p
	}
	add(16, p.read)
	add(6, p.stub)
	add(6, p.stat)
	add(10, p.list)
	add(5, p.write)
	add(3, p.remove)
	add(6, p.move)
	add(3, p.command)
	add(3, p.terminal)
	add(10, p.send)
	add(8, p.fetch)
	add(5, p.entries)
	add(5, p.make)
	add(3, p.print)
	add(3, p.device)
	add(3, p.forward)
	add(2, p.observe)
	add(10, p.turn)
	add(2, p.model)
	add(2, p.stream)
	add(3, p.nonsense)
	return p
}

// opening are the probes that each session begins with, so that each of the answers
// that there must be is among them.
func (p *prober) opening() []probe {
	if p.name == "control" {
		return nil
	}
	own := "new-" + p.name
	return []probe{
		{typ: wire.TFileList, payload: map[string]any{"path": "vault"}},
		{typ: wire.TFileRead, payload: map[string]any{"path": "control/raw"}},
		{typ: wire.TFileRead, payload: map[string]any{"path": "vault/body.txt"}, private: true},
		{typ: wire.TFileRead, payload: map[string]any{"path": "single.txt", "mode": "stub"}, private: p.s.Granted.Has(wire.Privacy)},
		{typ: wire.TFileStat, payload: map[string]any{"path": "vault/body.txt"}},
		{typ: wire.TFileMove, payload: map[string]any{"src": "vault/body.txt", "dst": own}, private: true},
		{typ: wire.TFileWrite, payload: map[string]any{"path": own, "content": "x"}},
		{typ: wire.TFileMove, payload: map[string]any{"src": own, "dst": own + "er"}},
		{typ: wire.TFileDelete, payload: map[string]any{"path": own + "er"}},
		{typ: wire.TTransferOpen, payload: map[string]any{"path": own, "size": transferSize}},
		{typ: wire.TTransferOpen, payload: map[string]any{"path": "single.txt", "size": transferSize}, private: true},
		{typ: wire.TTransferRead, payload: map[string]any{"path": "control/raw", "length": 10}},
	}
}

// run makes so many probes, some of them side by side.
func (p *prober) run(n int) {
	opening := p.opening()
	for n > 0 {
		var together []probe
		if len(opening) > 0 {
			together, opening = opening[:1], opening[1:]
		} else {
			for range min(n, 1+p.rng.IntN(4)) {
				together = append(together, p.kinds[p.rng.IntN(len(p.kinds))]())
			}
		}
		n -= len(together)
		changes := slices.ContainsFunc(together, func(q probe) bool { return q.changes })
		if changes {
			p.c.changing.Lock()
		} else {
			p.c.changing.RLock()
		}
		ids := make([]string, len(together))
		for i, q := range together {
			ids[i] = p.s.RequestWith(q.typ, q.payload, q.data)
		}
		for i, q := range together {
			p.take(q, ids[i])
		}
		if changes {
			p.c.replant()
			p.c.changing.Unlock()
		} else {
			p.c.changing.RUnlock()
		}
		p.drain()
	}
}

func (p *prober) take(q probe, id string) {
	e := p.s.Wait(id)
	for e.Type.IsChunk() {
		e = p.s.Wait(id)
	}
	p.h.note(p.name, q, e)
	var v map[string]any
	_ = json.Unmarshal(e.Payload, &v)
	if q.private && e.Type != wire.TError && (q.payload["mode"] != "stub" || v["content"] != nil || len(e.Data) > 0) {
		p.c.t.Errorf("%s %v is answered with %s %.300s", q.typ, q.payload, e.Type, e.Payload)
	}
	if entries, _ := v["entries"].([]any); q.empty && len(entries) > 0 {
		p.c.t.Errorf("%s %v lists %.300s", q.typ, q.payload, e.Payload)
	}
	if id, ok := v["transfer"].(string); ok && id != "" {
		p.transfers = append(p.transfers, id)
	}
	if id, ok := q.payload["transfer"].(string); ok && q.typ == wire.TTransferChunk && e.Type == wire.TAck {
		p.whole = append(p.whole, id)
	}
}

// drain takes what streams have brought; it is looked at where it left.
func (p *prober) drain() {
	for {
		select {
		case d := <-p.s.Streams:
			for _, r := range d.Records {
				if strings.Contains(string(r), `"connected"`) {
					p.c.t.Errorf("there is a connection to what runs on this machine: %.300s", r)
				}
			}
		case <-p.s.Status:
		default:
			return
		}
	}
}

func pick[T any](p *prober, from ...T) T { return from[p.rng.IntN(len(from))] }

// known are private files whose names are no secret here.
var known = []string{
	"vault/body.txt", "vault/people.csv", "vault/data.json", "vault/eight", "vault/data.gz", "vault/wide.txt", "vault/large.bin", "vault/.hidden",
	"notes/deep/a.secret", "single.txt", "deep/inner/only.txt", "named/list.csv", "public/to-body", "public/to-vault/body.txt", "public/hard", "public/to-name", "public/to-secret", "public/to-vault/data.json",
}

// secret are those whose names are.
func (p *prober) secret() string {
	if p.rng.IntN(6) == 0 {
		return "public/to-vault/" + p.c.name["file name"] + ".txt"
	}
	return p.real()
}

// real is one of these by the path that it really has.
func (p *prober) real() string {
	n := p.c.name
	inner := "vault/" + n["directory name"]
	return pick(p, "vault/"+n["file name"]+".txt", inner+"/inner.txt", inner, "vault/"+n["link name"], "notes/"+n["secret's name"]+".secret")
}

// someAlias is a path as a list told it.
func (p *prober) someAlias() string {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if len(p.h.aliases) == 0 {
		return "vault/private-aaaaaaaaaaaaaaaa"
	}
	return p.h.aliases[p.rng.IntN(len(p.h.aliases))]
}

// target is a path that leads into private territory, and whether it surely does.
func (p *prober) target() (path string, surely bool) {
	switch p.rng.IntN(11) {
	case 0, 1, 2, 3:
		path := pick(p, known...)
		if p.rng.IntN(2) == 0 {
			return p.spelled(path)
		}
		return path, true
	case 4, 5:
		path := p.secret()
		if p.rng.IntN(2) == 0 {
			path = p.c.at(path)
		}
		return path, true
	case 6, 7:
		return p.someAlias(), false // it may be of what is gone
	case 8:
		return pick(p, "control/raw", "control/gzip", "control/eight"), false
	case 9:
		return pick(p, "public/swap", "public/swapped/body.txt", "public/swapped/people.csv", "public/../public/swap"), false
	}
	return pick(p, "vault", "public/to-vault", "named", "notes", "notes/deep", ".", "public", "vault/nothing", "vault/body.txt/x", "single.txt/", "public/swapped", "control/raw", "control"), false
}

// spelled is another way to say a path.
func (p *prober) spelled(path string) (string, bool) {
	switch p.rng.IntN(12) {
	case 0:
		return p.c.at(path), true
	case 1:
		return "./" + path, true
	case 2:
		return strings.ReplaceAll(path, "/", "//"), true
	case 3:
		return strings.ReplaceAll(path, "/", "/./"), true
	case 4:
		return "public/../" + path, true
	case 5:
		return "public/to-vault/../" + path, false
	case 6:
		return path + "/", false
	case 7:
		return "/proc/self/root" + p.c.at(path), false
	case 8:
		return strings.ToUpper(path), false
	case 9:
		return path[:len(path)-1] + "\uFFFD", false
	case 10:
		return path + "\x00.txt", false
	}
	return "~/" + path, false
}

func (p *prober) read() probe {
	path, surely := p.target()
	payload := map[string]any{"path": path, "encoding": pick(p, "utf-8", "base64")}
	if p.rng.IntN(2) == 0 {
		payload["offset"] = p.rng.IntN(3000)
	}
	if p.rng.IntN(2) == 0 {
		payload["length"] = 1 + p.rng.IntN(5000)
	}
	if p.rng.IntN(4) == 0 {
		payload["format"] = pick(p, "bytes", "text")
	}
	switch p.rng.IntN(8) {
	case 0:
		payload["mode"] = pick[any](p, "content", "Stub", "stub ", nil, 7, []string{"stub"})
		surely = surely && payload["mode"] == "content"
	case 1: // refused before it is looked where the path leads
		payload["path"], payload["offset"] = p.real(), -1
	}
	return probe{typ: wire.TFileRead, payload: payload, private: surely}
}

func (p *prober) stub() probe {
	path, surely := p.target()
	return probe{typ: wire.TFileRead, payload: map[string]any{"path": path, "mode": "stub", "encoding": pick(p, "utf-8", "base64"), "schema_preview_bytes": 4096}, private: surely}
}

func (p *prober) stat() probe {
	path, _ := p.target()
	return probe{typ: wire.TFileStat, payload: map[string]any{"path": path, "follow_symlinks": p.rng.IntN(2) == 0}}
}

func (p *prober) list() probe {
	path, _ := p.target()
	if p.rng.IntN(2) == 0 {
		path = pick(p, "vault", "public", ".", "notes", "named", "public/to-vault", p.c.at("vault"))
	}
	payload := map[string]any{"path": path, "recursive": p.rng.IntN(2) == 0, "include_hidden": p.rng.IntN(2) == 0, "max_entries": pick(p, 1, 3, 1000)}
	q := probe{typ: wire.TFileList, payload: payload}
	switch p.rng.IntN(4) {
	case 0: // what begins like a secret name: a glob must not tell that there is one
		payload["path"] = pick(p, "vault", "notes", ".")
		payload["glob"] = pick(p, p.c.name["file name"], p.c.name["directory name"], p.c.name["secret's name"], p.c.name["link name"])[:7] + "*"
		q.empty = true
	case 1:
		payload["glob"] = pick(p, "*", "*.txt", "*.csv", "[!x]*", "*e*", "private-*", "????????", "*.secret", "*"+p.c.name["file name"]+"*")
	}
	return q
}

func (p *prober) contents() []byte {
	return []byte(pick(p, "", "written by a probe", "a,b\n1,2\n", `{"a":1}`, strings.Repeat("x", 5000)))
}

func (p *prober) write() probe {
	path, _ := p.target()
	if p.rng.IntN(3) == 0 {
		path = pick(p, "vault/new.txt", "public/new.txt", "notes/new.secret", "vault/a/b/c", "public/swap/x", "new")
	}
	return probe{typ: wire.TFileWrite, changes: true, payload: map[string]any{
		"path": path, "content": base64.StdEncoding.EncodeToString(p.contents()), "encoding": "base64", "create_parents": p.rng.IntN(2) == 0,
	}}
}

func (p *prober) remove() probe {
	path, _ := p.target()
	if p.rng.IntN(3) == 0 {
		path = pick(p, "vault", ".", "notes", "public", "public/new.txt", "new", "named", "notes/deep", "deep")
	}
	return probe{typ: wire.TFileDelete, changes: true, payload: map[string]any{"path": path, "recursive": p.rng.IntN(2) == 0, "missing_ok": p.rng.IntN(2) == 0}}
}

func (p *prober) move() probe {
	src, surely := p.target()
	dst := pick(p, "moved", "moved2", "public/moved", "public/body.txt", "vault/moved", "public/moved.secret", "control/moved", "public/swap", "vault/body.txt", "single.txt", "vault", "public/to-vault/moved")
	switch p.rng.IntN(5) {
	case 0:
		src, surely = pick(p, "vault", "notes", "notes/deep", "named", "public", ".", "deep", "deep/inner"), false
	case 1:
		src, surely = pick(p, "control/eight", "public/new.txt", "moved"), false
	}
	// A link is moved as what it is.
	surely = surely && !strings.Contains(src, "public") && !strings.Contains(src, p.c.name["link name"])
	return probe{typ: wire.TFileMove, changes: true, private: surely, payload: map[string]any{"src": src, "dst": dst, "overwrite": p.rng.IntN(2) == 0}}
}

func (p *prober) command() probe {
	path := pick(p, pick(p, known...), p.real())
	payload := map[string]any{"timeout_seconds": 5}
	switch p.rng.IntN(5) {
	case 0:
		payload["argv"] = []string{"cat", path}
	case 1:
		payload["command"] = "base64 " + path + "; cat vault/* | gzip"
	case 2:
		payload["command"], payload["cwd"] = "cat *", "vault"
	case 3:
		payload["command"], payload["env"] = "true", map[string]string{"LD_PRELOAD": p.c.at(path), "ENV": p.c.at(path), "BASH_ENV": p.c.at(path)}
	case 4:
		payload["argv"] = []string{p.c.at(path)}
	}
	return probe{typ: wire.TExecuteCommand, payload: payload, private: true}
}

func (p *prober) terminal() probe {
	id := fmt.Sprintf("%032x", p.rng.Uint64())
	switch p.rng.IntN(6) {
	case 0:
		return probe{typ: wire.TTerminalAttach, payload: map[string]any{"terminal": id}}
	case 1:
		return probe{typ: wire.TTerminalInput, payload: map[string]any{"terminal": id, "writer": "w", "offset": 0, "data": base64.StdEncoding.EncodeToString([]byte("cat vault/body.txt\n"))}}
	case 2:
		return probe{typ: wire.TTerminalList, payload: map[string]any{}}
	}
	return probe{typ: wire.TTerminalOpen, private: true, payload: map[string]any{"argv": []string{"cat", pick(p, known...)}, "pty": p.rng.IntN(2) == 0, "cwd": pick(p, "vault", ".", "public", p.real())}}
}

// send sends files in pieces, onto private ones too.
func (p *prober) send() probe {
	content := []byte(strings.Repeat("y", transferSize))
	last := func(ids *[]string) string {
		n := len(*ids)
		if n == 0 || p.rng.IntN(8) == 0 {
			return fmt.Sprintf("%032x", p.rng.Uint64())
		}
		id := (*ids)[n-1]
		*ids = (*ids)[:n-1]
		return id
	}
	switch k := p.rng.IntN(8); {
	case k < 3 && len(p.transfers) > 0:
		return probe{typ: wire.TTransferChunk, payload: map[string]any{"transfer": last(&p.transfers), "offset": 0}, data: content}
	case k < 5 && len(p.whole) > 0:
		return probe{typ: wire.TTransferCommit, changes: true, payload: map[string]any{"transfer": last(&p.whole), "sha256": sumOf(content)}}
	case k == 5:
		return probe{typ: wire.TTransferAbort, changes: true, payload: map[string]any{"transfer": last(&p.transfers)}}
	}
	path, _ := p.target()
	if p.rng.IntN(3) > 0 {
		path = pick(p, "public/sent", "public/sent", "sent", "sent2", "vault/sent", "notes/sent.secret", "public/to-vault/sent", "public/swap")
	}
	payload := map[string]any{"path": path, "size": transferSize, "create_parents": true, "mode": "0644"}
	if p.rng.IntN(3) == 0 { // is it this long, and of this time?
		payload["unless_same"], payload["mtime_ns"] = true, 1700000000000000000
	}
	q := probe{typ: wire.TTransferOpen, changes: true, payload: payload}
	if p.rng.IntN(3) == 0 {
		payload["sha256"], q.data = sumOf(content), content
	}
	return q
}

func (p *prober) fetch() probe {
	path, surely := p.target()
	payload := map[string]any{"path": path, "offset": p.rng.IntN(100), "length": 1 + p.rng.IntN(200000)}
	if p.rng.IntN(3) == 0 {
		payload["hash_only"] = true
	}
	if p.rng.IntN(5) == 0 {
		payload["version"] = fmt.Sprintf("%x", p.rng.Uint64())
	}
	return probe{typ: wire.TTransferRead, payload: payload, private: surely}
}

func (p *prober) entries() probe {
	path := pick(p, "vault", "public", ".", "notes", "named", "public/to-vault", "public/swapped", "notes/deep")
	payload := map[string]any{"path": path}
	if p.rng.IntN(3) == 0 {
		payload["after"] = pick(p, "A", "Z", "m", "private-m", p.c.name["file name"][:7])
	}
	return probe{typ: wire.TTransferList, payload: payload}
}

// make makes links to what is private, and directories in its place.
func (p *prober) make() probe {
	path := pick(p, "public/made", "made", "vault/made", "public/made2/body.txt", "notes/made.secret", "vault", "vault/body.txt", "single.txt")
	payload := map[string]any{"path": path, "kind": "link", "create_parents": true}
	target := pick(p, known...)
	switch p.rng.IntN(5) {
	case 0:
		payload["kind"], payload["mode"] = "directory", "0777"
	case 1:
		payload["target"] = p.c.at(target)
	case 2:
		payload["target"] = "../" + target
	case 3:
		payload["target"] = pick(p, "vault", "../vault", p.c.at("vault"), "/proc/self/fd", "/etc")
	case 4:
		payload["target"] = target
	}
	return probe{typ: wire.TTransferMake, changes: true, payload: payload}
}

func (p *prober) print() probe {
	path, surely := p.target()
	return probe{typ: wire.THardwareOp, private: surely, payload: map[string]any{"device": printer3D, "op": wire.OpPrinterUpload,
		"args": map[string]any{"path": path, "name": pick(p, "a.gcode", "b.gcode"), "print": p.rng.IntN(3) == 0}}}
}

// device uses hardware, and private files as if they were some.
func (p *prober) device() probe {
	path := p.c.at(pick(p, known...))
	switch p.rng.IntN(6) {
	case 0:
		return probe{typ: wire.TSerialOpen, payload: map[string]any{"port": path, "timeout_seconds": 0.1}}
	case 1:
		return probe{typ: wire.TGPIOConfigure, payload: map[string]any{"chip": path, "line": 4}}
	case 2:
		return probe{typ: wire.THardwareOp, payload: map[string]any{"device": path, "op": pick(p, wire.OpSerialRead, wire.OpI2CTransfer, wire.OpSPITransfer, wire.OpUSBDescribe, wire.OpGPIOGet), "args": map[string]any{"size": 8, "timeout_seconds": 0.1}}}
	case 3:
		return probe{typ: wire.THardwareOp, payload: map[string]any{"device": printer3D, "op": wire.OpPrinterFiles, "args": map[string]any{"action": pick(p, "list", "select", "delete"), "path": path}}}
	case 4:
		return probe{typ: wire.THardwareOp, payload: map[string]any{"device": printer3D, "op": wire.OpPrinterStatus, "args": map[string]any{}}}
	}
	return probe{typ: wire.THardwareListRequest, payload: map[string]any{}}
}

// forward goes to what runs on this machine and has private files.
func (p *prober) forward() probe {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if len(p.h.streams) > 0 && p.rng.IntN(3) == 0 {
		return probe{typ: wire.TForwardData, payload: map[string]any{"stream": p.h.streams[p.rng.IntN(len(p.h.streams))], "offset": 0, "data": base64.StdEncoding.EncodeToString([]byte("GET / HTTP/1.0\r\n\r\n"))}}
	}
	host := pick(p, "127.0.0.1", "localhost", "::1", "0.0.0.0", "127.1", "127.0.0.2", "::ffff:127.0.0.1", "[::1]", "LOCALHOST", "localhost.", "2130706433")
	return probe{typ: wire.TForwardOpen, payload: map[string]any{"host": host, "port": json.Number(p.h.service)}} // its stream says that it failed
}

func (p *prober) observe() probe {
	if p.rng.IntN(3) == 0 {
		return probe{typ: wire.TTopRequest, payload: map[string]any{}}
	}
	return probe{typ: wire.TLogsRequest, payload: map[string]any{"lines": 100, "unit": pick(p, "", "farhandd", "*")}, private: true}
}

// turn asks a model about private files: by stubs of this session's, of the
// other's, and of nobody's.
func (p *prober) turn() probe {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	own := true
	var refs []string
	for range 1 + p.rng.IntN(3) {
		session := p.name
		if p.rng.IntN(6) == 0 {
			session = pick(p, "one", "two")
		}
		ref := "stub_" + strings.Repeat("0", 32)
		if all := p.h.stubs[session]; len(all) > 0 {
			ref = all[max(0, len(all)-1-p.rng.IntN(20))] // most of what is older is stale
		} else {
			session = ""
		}
		own = own && session == p.name
		refs = append(refs, ref)
	}
	return probe{typ: wire.TLLMTurn, private: !own, payload: map[string]any{
		"model": pick(p, canaryModels...), "task": "Repeat all of it.", "stub_refs": refs, "context": "files", "stream": p.rng.IntN(2) == 0, "wait": true, "max_tokens": 512,
	}}
}

func (p *prober) model() probe {
	switch p.rng.IntN(4) {
	case 0:
		return probe{typ: wire.TLLMStatusRequest, payload: map[string]any{}}
	case 1:
		return probe{typ: wire.TLLMEmbed, payload: map[string]any{"model": "tiny:1b", "input": []string{p.someAlias()}}}
	case 2:
		return probe{typ: wire.TLLMPull, payload: map[string]any{"model": p.c.at("vault/body.txt")}}
	}
	return probe{typ: wire.TLocalLLMCompletion, payload: map[string]any{"model": pick(p, canaryModels...), "stream": false, "think": true, "wait": true,
		"messages": []map[string]any{{"role": "user", "content": "What did the one before say? " + pick(p, known...)}}}}
}

func (p *prober) stream() probe {
	id := fmt.Sprintf("%032x", p.rng.Uint64())
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if len(p.h.streams) > 0 {
		id = p.h.streams[p.rng.IntN(len(p.h.streams))]
	}
	if p.rng.IntN(3) == 0 {
		return probe{typ: wire.TStreamClose, payload: map[string]any{"stream": id}}
	}
	return probe{typ: wire.TStreamAttach, payload: map[string]any{"stream": id, "from": 0, "credit": 65536}}
}

// nonsense is any request with a payload that belongs to another, or to none.
func (p *prober) nonsense() probe {
	var all []wire.Type
	for _, m := range wire.Methods() {
		if !m.OneWay() && m.Request != wire.TGrantsUpdate && m.Request != wire.TSettingsSet {
			all = append(all, m.Request)
		}
	}
	slices.Sort(all)
	path := pick(p, known...)
	payload := map[string]any{}
	for range p.rng.IntN(8) {
		key := pick(p, "path", "src", "dst", "device", "op", "args", "cwd", "command", "argv", "model", "messages", "stub_refs", "mode", "offset", "length", "port", "chip", "handle", "stream", "transfer", "session_id", "root_grant", "target", "kind", "glob", "encoding")
		payload[key] = pick[any](p, path, p.c.at(path), nil, -1, 1e300, true, []any{path}, map[string]any{"path": path}, strings.Repeat("a", 5000), "\u202e")
	}
	return probe{typ: pick(p, all...), payload: payload, changes: true}
}

// browse looks for directories on the control socket.
func (p *prober) browse() probe {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if len(p.h.refs) == 0 || p.rng.IntN(4) == 0 {
		return probe{typ: wire.TDirectoryListRequest, payload: map[string]any{}}
	}
	ref := p.h.refs[max(0, len(p.h.refs)-1-p.rng.IntN(12))]
	return probe{typ: wire.TDirectoryListRequest, payload: map[string]any{"browse_id": ref[0], "directory_ref": ref[1]}}
}

func (p *prober) attach() probe {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	browse, ref := "nothing", "nothing"
	if len(p.h.refs) > 0 {
		r := p.h.refs[max(0, len(p.h.refs)-1-p.rng.IntN(12))]
		browse, ref = r[0], r[1]
	}
	return probe{typ: wire.TAttachSession, payload: map[string]any{"session_id": fmt.Sprintf("try-%d", p.rng.IntN(50)), "browse_id": browse, "directory_ref": ref, "expected_connection_id": "x"}}
}

func (p *prober) askMachine() probe {
	return probe{typ: pick(p, wire.TMachineListRequest, wire.TAuditVerifyRequest, wire.THardwareListRequest, wire.TSettingsGet), payload: map[string]any{}}
}
