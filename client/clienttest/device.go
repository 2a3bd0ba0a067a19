package clienttest

import (
	"bytes"
	"encoding/json"
	"path"
	"sort"
	"strings"
	"sync"

	"farhand/wire"
)

// Memory is a machine whose files, commands and one serial instrument are in
// memory. Once it has answered a request, its fields are changed by Change alone.
type Memory struct {
	MaxFile int64 // limit of one read or write
	Exec    func(wire.ExecuteCommand) (wire.CommandResult, error)
	Devices []wire.HardwareDevice

	mu    sync.Mutex
	files map[string][]byte // absolute path -> content; nil: a directory
}

// SerialID is the instrument: it answers "*IDN?\n" and is silent otherwise.
const SerialID = "serial:usb-2341:0043-95530"

// NewDevice makes a machine with a few files.
func NewDevice() *Memory {
	return &Memory{
		MaxFile: 10 << 20,
		Devices: []wire.HardwareDevice{
			{Type: "serial", ID: SerialID, Desc: "Arduino Uno", Port: "/dev/ttyACM0", VID: "2341", PID: "0043", Available: true, Generation: 1},
			{Type: "gpio", ID: "gpio:pinctrl-bcm2711", Chip: "/dev/gpiochip0", Lines: 58, Reason: "no driver yet", Generation: 1},
		},
		files: map[string][]byte{
			"/data/work": nil, "/data/work/logs": nil, "/data/work/logs/today.log": []byte("one\ntwo\n"),
			"/data/work/hello.txt": []byte("hello\n"), "/data/work/.hidden": []byte("x"), "/srv": nil, "/srv/www": nil,
		},
	}
}

// Change changes the fields of m while no request reads them.
func (m *Memory) Change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Set makes a file, Get returns one.
func (m *Memory) Set(name string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = content
}

// Get returns a file's content.
func (m *Memory) Get(name string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[name]
	return b, ok && b != nil
}

// Answer answers one request in a session's root. Exec runs without a lock.
func (m *Memory) Answer(env wire.Envelope, root string) (wire.Type, any, error) {
	if env.Type == wire.TExecuteCommand {
		return run(env, wire.TCommandResult, func(q wire.ExecuteCommand) (any, error) {
			m.mu.Lock()
			exec := m.Exec
			m.mu.Unlock()
			if exec == nil {
				return nil, wire.Errorf(wire.CapabilityNotGranted, "shell is off").With("capability", "shell").With("ceiling", "config")
			}
			return result(exec(q))
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch env.Type {
	case wire.TPing:
		return wire.TPong, wire.Empty{}, nil
	case wire.TFileStat:
		return run(env, wire.TFileStatResponse, func(q wire.FileStat) (any, error) { return m.stat(root, q) })
	case wire.TFileList:
		return run(env, wire.TFileListResponse, func(q wire.FileList) (any, error) { return m.list(root, q) })
	case wire.TFileRead:
		return run(env, wire.TFileContents, func(q wire.FileRead) (any, error) { return m.read(root, q) })
	case wire.TFileWrite:
		q, err := wire.DecodeFileWrite(env.Payload)
		if err != nil {
			return "", nil, err
		}
		return wire.TAck, wire.Ack{OK: true}, m.write(root, q)
	case wire.TFileDelete:
		return run(env, wire.TAck, func(q wire.FileDelete) (any, error) { return wire.Ack{OK: true}, m.remove(root, q) })
	case wire.TFileMove:
		return run(env, wire.TAck, func(q wire.FileMove) (any, error) { return wire.Ack{OK: true}, m.move(root, q) })
	case wire.THardwareListRequest:
		return run(env, wire.THardwareListResponse, func(q wire.HardwareListRequest) (any, error) { return m.hardware(q), nil })
	case wire.THardwareOp:
		return run(env, wire.THardwareResult, operate)
	}
	return "", nil, wire.Errorf(wire.FeatureNotSupported, "no %s here", env.Type)
}

func run[Q any](env wire.Envelope, t wire.Type, f func(Q) (any, error)) (wire.Type, any, error) {
	var q Q
	if err := wire.Decode(env.Payload, &q); err != nil {
		return "", nil, err
	}
	payload, err := f(q)
	return t, payload, err
}

func result[T any](v T, err error) (any, error) { return v, err }

func (m *Memory) resolve(root, p string) (string, error) {
	if !path.IsAbs(p) {
		p = root + "/" + p
	}
	p = path.Clean(p)
	if p != root && !strings.HasPrefix(p, root+"/") {
		return "", wire.Errorf(wire.PathOutsideAllowedRoot, "%s is outside", p).With("path", p)
	}
	return p, nil
}

func (m *Memory) stat(root string, q wire.FileStat) (any, error) {
	p, err := m.resolve(root, q.Path)
	if err != nil {
		return nil, err
	}
	content, ok := m.files[p]
	if !ok {
		return wire.FileStatResponse{Path: &p}, nil
	}
	no, dir, size, mtime := false, content == nil, int64(len(content)), 1796000000.5
	mode, uid, mime := "0644", uint32(1000), "text/plain"
	file := !dir
	s := wire.FileStatResponse{Exists: true, IsFile: &file, IsDir: &dir, IsSymlink: &no, SizeBytes: &size, MTime: &mtime,
		CTime: &mtime, Mode: &mode, OwnerUID: &uid, OwnerGID: &uid, Path: &p}
	if file {
		s.MIMEType = &mime
	}
	return s, nil
}

func (m *Memory) list(root string, q wire.FileList) (any, error) {
	dir, err := m.resolve(root, q.Path)
	if err != nil {
		return nil, err
	}
	content, ok := m.files[dir]
	if !ok {
		return nil, wire.Errorf(wire.PathNotFound, "%s does not exist", dir).With("path", dir)
	}
	if content != nil {
		return nil, wire.Errorf(wire.InternalError, "%s is not a directory", dir).With("reason", "not_a_directory")
	}
	out := wire.FileListResponse{Entries: []wire.FileEntry{}}
	for p, content := range m.files {
		rest, below := strings.CutPrefix(p, dir+"/")
		hidden := strings.HasPrefix(path.Base(p), ".")
		if !below || hidden && !q.IncludeHidden || strings.Contains(rest, "/") && !q.Recursive {
			continue
		}
		if q.Glob != nil {
			if ok, _ := path.Match(*q.Glob, path.Base(p)); !ok {
				continue
			}
		}
		out.Entries = append(out.Entries, wire.FileEntry{
			Name: path.Base(p), Path: p, IsDir: content == nil, IsFile: content != nil, SizeBytes: int64(len(content)), MTime: 1796000000.5,
		})
	}
	sort.Slice(out.Entries, func(i, j int) bool { return out.Entries[i].Path < out.Entries[j].Path })
	return out, nil
}

func (m *Memory) read(root string, q wire.FileRead) (any, error) {
	p, err := m.resolve(root, q.Path)
	if err != nil {
		return nil, err
	}
	content, ok := m.files[p]
	if !ok {
		return nil, wire.Errorf(wire.PathNotFound, "%s does not exist", p).With("path", p)
	}
	rest := content[min(q.Offset, int64(len(content))):]
	want := int64(len(rest))
	if q.Length != nil {
		want = *q.Length
	}
	if want > m.MaxFile {
		return nil, wire.Errorf(wire.FileTooLarge, "%d bytes are too many", want).
			With("max_file_size_bytes", m.MaxFile).With("attempted_bytes", want).With("op", "FILE_READ")
	}
	n := min(want, int64(len(rest)))
	return &wire.FileContents{Content: rest[:n], Encoding: wire.EncodingBase64, SizeBytes: n, Truncated: n < int64(len(rest))}, nil
}

func (m *Memory) write(root string, q wire.FileWrite) error {
	p, err := m.resolve(root, q.Path)
	if err != nil {
		return err
	}
	if int64(len(q.Content)) > m.MaxFile {
		return wire.Errorf(wire.FileTooLarge, "%d bytes are too many", len(q.Content)).
			With("max_file_size_bytes", m.MaxFile).With("attempted_bytes", len(q.Content)).With("op", "FILE_WRITE")
	}
	if parent, ok := m.files[path.Dir(p)]; (!ok || parent != nil) && !q.CreateParents {
		return wire.Errorf(wire.PathNotFound, "%s does not exist", path.Dir(p)).With("path", p)
	}
	for dir := path.Dir(p); dir != root && q.CreateParents; dir = path.Dir(dir) {
		m.files[dir] = nil
	}
	m.files[p] = append([]byte{}, q.Content...)
	return nil
}

func (m *Memory) remove(root string, q wire.FileDelete) error {
	p, err := m.resolve(root, q.Path)
	if err != nil {
		return err
	}
	if _, ok := m.files[p]; !ok {
		if q.MissingOK {
			return nil
		}
		return wire.Errorf(wire.PathNotFound, "%s does not exist", p).With("path", p)
	}
	for other := range m.files {
		if strings.HasPrefix(other, p+"/") {
			if !q.Recursive {
				return wire.Errorf(wire.PathNotEmpty, "%s is not empty", p).With("path", p)
			}
			delete(m.files, other)
		}
	}
	delete(m.files, p)
	return nil
}

func (m *Memory) move(root string, q wire.FileMove) error {
	src, err := m.resolve(root, q.Src)
	if err != nil {
		return err
	}
	dst, err := m.resolve(root, q.Dst)
	if err != nil {
		return err
	}
	if _, ok := m.files[src]; !ok {
		return wire.Errorf(wire.PathNotFound, "%s does not exist", src).With("src", src)
	}
	if _, ok := m.files[dst]; ok && !q.Overwrite {
		return wire.Errorf(wire.PathExists, "%s exists", dst).With("dst", dst)
	}
	m.files[dst] = m.files[src]
	delete(m.files, src)
	return nil
}

func (m *Memory) hardware(q wire.HardwareListRequest) wire.HardwareListResponse {
	out := wire.HardwareListResponse{Devices: []wire.HardwareDevice{}}
	for _, d := range m.Devices {
		if q.Type == nil || *q.Type == d.Type {
			out.Devices = append(out.Devices, d)
		}
	}
	return out
}

func operate(op wire.HardwareOp) (any, error) {
	if op.Device != SerialID && op.Device != "/dev/ttyACM0" {
		return nil, wire.Errorf(wire.HardwareNotFound, "no device %s", op.Device).With("device", op.Device)
	}
	out := wire.HardwareResult{Device: SerialID, Generation: 1}
	switch op.Op {
	case wire.OpRelease:
		out.Result = struct{}{}
	case wire.OpSerialWrite:
		var args wire.SerialWrite
		if err := json.Unmarshal(op.Args, &args); err != nil {
			return nil, wire.Errorf(wire.InvalidArgument, "%v", err)
		}
		out.Result = wire.SerialWritten{BytesWritten: len(args.Data)}
	case wire.OpSerialRead:
		out.Result = wire.SerialData{Data: []byte{}, TimedOut: true, StopReason: "timeout"}
	case wire.OpSerialTransact:
		var args wire.SerialTransact
		if err := json.Unmarshal(op.Args, &args); err != nil {
			return nil, wire.Errorf(wire.InvalidArgument, "%v", err)
		}
		data := wire.SerialData{Data: []byte{}, TimedOut: true, StopReason: "timeout", BytesWritten: len(args.Data)}
		if bytes.Equal(args.Data, []byte("*IDN?\n")) {
			data.Data, data.TimedOut, data.StopReason = []byte("ACME,42,0,1.0\n"), false, "until"
			data.BytesSeen, data.BytesReturned = len(data.Data), len(data.Data)
		}
		out.Result = data
	case wire.OpSerialControl:
		out.Result = wire.SerialLines{ModemLines: true, DTR: true, CTS: true, Baudrate: 9600}
	default:
		return nil, wire.Errorf(wire.FeatureNotSupported, "no %s", op.Op)
	}
	return out, nil
}
