package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"farhand/audit"
	"farhand/device"
	"farhand/files"
	"farhand/grant"
	"farhand/shell"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

// session is one data session: its root and what its requests may do. The table
// below is the one place that names every method the daemon serves.
type session struct {
	*shim.Session
	d      *services
	root   *files.Root
	forget func() // ends following the policy
	// handles are what SERIAL_OPEN and its kin opened; nil without hardware
	handles  *shim.Handles
	fetching fetching
	stubs    stubs
}

// openSession opens what a data session needs.
func (d *services) openSession(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
	if err := d.checkRoot(s.Root()); err != nil {
		return nil, nil, fmt.Errorf("the session's root: %w", err)
	}
	root, err := files.Open(s.Root(), d.forbidden, d.private)
	if err != nil {
		return nil, nil, fmt.Errorf("open the session's root: %w", err)
	}
	x := &session{Session: s, d: d, root: root}
	x.forget = s.OnPolicy(x.endForbidden)
	if d.terminals != nil {
		d.terminals.Hold(s.ID(), s.Hold)
	}
	if d.leases != nil {
		d.live.add(s.ID(), x)
		x.handles = shim.NewHandles(s, handled{x})
	}
	return x.methods(), x, nil
}

// endForbidden ends the leases and streams that a changed policy no longer
// allows.
func (s *session) endForbidden(p *grant.Policy) {
	defer s.d.endForbiddenStreams(s.ID(), p)
	if p.Capability(wire.Shell) != nil || p.Root(s.Root()) != nil {
		s.d.endTerminals(s.ID(), stream.ReasonGrantRevoked)
	}
	if s.d.leases == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseCloseTime)
	defer cancel()
	_, err := s.d.leases.EndWhere(ctx, errGrantRevoked, func(l device.LeaseInfo) bool {
		return l.Holder.Session == s.ID() && (p.Capability(family(l.Device)) != nil || p.Line(l.Device, l.Op, l.Names) != nil)
	})
	if err != nil {
		s.d.log.Warn("a device that is no longer allowed was not given back in time", "session", s.ID(), "error", err)
	}
}

// errGrantRevoked ends what a changed grant no longer allows.
var errGrantRevoked = wire.Errorf(wire.HardwareNotGranted, "the grant for this device was revoked").With("reason", "grant_revoked")

// family is the capability that the device with this canonical id belongs to.
func family(id string) wire.Capability {
	typ, _, _ := strings.Cut(id, ":")
	return wire.HardwareCapability(typ)
}

// Close ends what the session holds.
func (s *session) Close() error {
	s.forget()
	if !s.Stopping() { // terminals outlive a connection to the platform, but not their session
		s.d.endTerminals(s.ID(), stream.ReasonSessionEnded)
	}
	s.d.uploads.EndSession(s.ID())
	err := s.root.Close()
	if s.d.leases != nil {
		err = errors.Join(err, s.handles.Close())
		ctx, cancel := context.WithTimeout(context.Background(), leaseCloseTime)
		defer cancel()
		err = errors.Join(err, s.d.leases.ReleaseAll(ctx, s.ID()))
		s.d.live.remove(s.ID(), s)
	}
	s.d.streams.EndWhere(stream.ReasonSessionEnded, func(i stream.Info) bool { return i.Session == s.ID() })
	return err
}

// leaseCloseTime bounds waiting for a device to be given back.
const leaseCloseTime = 2 * time.Second

func (s *session) methods() shim.Table {
	t := shim.Table{
		wire.TFileStat:   {Handle: shim.Unary(s.stat), Quick: true},
		wire.TFileRead:   {Handle: shim.Unary(s.read), Quick: true},
		wire.TFileList:   {Handle: shim.Unary(s.list), Quick: true},
		wire.TFileWrite:  {Handle: s.write},
		wire.TFileDelete: {Handle: shim.Unary(s.delete)},
		wire.TFileMove:   {Handle: shim.Unary(s.move)},

		wire.TExecuteCommand:     {Handle: shim.Unary(s.execute), Quick: true}, // starting is quick; the rest relieves the reader
		wire.TLocalLLMCompletion: {Handle: shim.Unary(s.complete)},
		wire.TLLMTurn:            {Handle: shim.Unary(s.turn)},
		wire.TLLMStatusRequest:   {Handle: shim.Unary(s.llmStatus)},
		wire.TLLMEmbed:           {Handle: shim.Unary(s.embed)},
		wire.TLLMPull:            {Handle: shim.Unary(s.pull)},
		wire.TLLMRemove:          {Handle: shim.Unary(s.removeModel)},
		wire.TLLMInstall:         {Handle: shim.Unary(s.install)},
		wire.TLLMUninstall:       {Handle: shim.Unary(s.uninstall)},

		wire.THardwareListRequest: {Handle: shim.Unary(s.d.listHardware)},
		wire.THardwareOp:          {Handle: shim.Unary(s.hardware), Lane: s.hardwareLane, Quick: true},
	}
	if s.d.forward != nil {
		t[wire.TForwardOpen] = shim.Method{Handle: shim.Unary(s.openForward), Quick: true}
		t[wire.TForwardData] = shim.Method{Handle: shim.Unary(s.forwardData), Quick: true, Lane: func(*shim.Call) string { return "forward" }}
	}
	if s.d.observe != nil {
		t[wire.TTopRequest] = shim.Method{Handle: shim.Unary(s.top)}
		t[wire.TLogsRequest] = shim.Method{Handle: shim.Unary(s.logs)}
	}
	maps.Copy(t, s.transferMethods())
	maps.Copy(t, s.d.streamMethods())
	maps.Copy(t, s.terminalMethods())
	if s.handles != nil {
		maps.Copy(t, s.handles.Methods())
	}
	return t
}

func (s *session) stat(ctx context.Context, c *shim.Call, r wire.FileStat) (any, error) {
	follow := r.FollowSymlinks == nil || *r.FollowSymlinks
	return look(s, c, r.Path, func() (any, []audit.Field, error) {
		answer, t, err := s.root.Stat(ctx, r)
		return answer, []audit.Field{audit.String("path", t.Path), audit.Bool("follow_symlinks", follow)}, err
	})
}

func (s *session) read(ctx context.Context, c *shim.Call, r wire.FileRead) (any, error) {
	if r.Mode != "" && c.Granted().Has(wire.Privacy) {
		switch r.Mode {
		case wire.ModeStub:
			return s.stub(ctx, c, r)
		case wire.ModeContent:
		default:
			return nil, wire.Errorf(wire.InvalidArgument, "mode is %s or %s", wire.ModeContent, wire.ModeStub).With("field", "mode")
		}
	}
	encoding := wire.EncodingUTF8
	if r.Binary() {
		encoding = wire.EncodingBase64
	}
	return look(s, c, r.Path, func() (any, []audit.Field, error) {
		answer, t, err := s.root.Read(ctx, r, s.Limits().MaxFileSize)
		return answer, []audit.Field{
			audit.String("path", t.Path), audit.String("encoding", encoding), audit.Int("offset", r.Offset),
			audit.IntOrNull("length", r.Length), audit.Int("size_bytes_returned", t.Bytes),
		}, err
	})
}

func (s *session) list(ctx context.Context, c *shim.Call, r wire.FileList) (any, error) {
	var glob *string
	if r.Glob != nil {
		text := s.typed(*r.Glob)
		glob = &text
	}
	limit := wire.MaxListEntries
	if r.MaxEntries != nil {
		limit = *r.MaxEntries
	}
	return look(s, c, r.Path, func() (any, []audit.Field, error) {
		answer, t, err := s.root.List(ctx, r)
		return answer, []audit.Field{
			audit.String("path", t.Path), audit.StringOrNull("glob", glob), audit.Bool("recursive", r.Recursive),
			audit.Bool("include_hidden", r.IncludeHidden), audit.Int("max_entries", limit), audit.Int("entries_returned", t.Entries),
		}, err
	})
}

func (s *session) write(ctx context.Context, c *shim.Call) (any, error) {
	r, err := wire.DecodeFileWrite(c.Payload)
	if err != nil {
		return nil, err
	}
	intent := []audit.Field{
		audit.String("path", s.told(ctx, r.Path)), audit.String("encoding", r.Encoding), audit.Bool("create_parents", r.CreateParents),
		audit.Int("size_bytes", len(r.Content)),
	}
	return change(s, c, r.Path, intent, func() (any, []audit.Field, error) {
		t, err := s.root.Write(ctx, r, s.Limits().MaxFileSize)
		return wire.Ack{OK: true}, []audit.Field{
			audit.String("path", t.Path), audit.String("encoding", r.Encoding), audit.Bool("create_parents", r.CreateParents),
			audit.Int("size_bytes_written", t.Bytes),
		}, err
	})
}

func (s *session) delete(ctx context.Context, c *shim.Call, r wire.FileDelete) (any, error) {
	details := func(path string) []audit.Field {
		return []audit.Field{audit.String("path", path), audit.Bool("recursive", r.Recursive), audit.Bool("missing_ok", r.MissingOK)}
	}
	return change(s, c, r.Path, details(s.told(ctx, r.Path)), func() (any, []audit.Field, error) {
		t, err := s.root.Delete(ctx, r)
		return wire.Ack{OK: true}, details(t.Path), err
	})
}

func (s *session) move(ctx context.Context, c *shim.Call, r wire.FileMove) (any, error) {
	details := func(src, dst string) []audit.Field {
		return []audit.Field{audit.String("src", src), audit.String("dst", dst), audit.Bool("overwrite", r.Overwrite)}
	}
	return change(s, c, r.Src, details(s.told(ctx, r.Src), s.told(ctx, r.Dst)), func() (any, []audit.Field, error) {
		t, err := s.root.Move(ctx, r)
		return wire.Ack{OK: true}, details(t.Src, t.Dst), err
	})
}

func (s *session) execute(ctx context.Context, c *shim.Call, r wire.ExecuteCommand) (any, error) {
	if s.d.shell == nil {
		return nil, wire.Errorf(wire.CapabilityNotGranted, "shell is off on this machine; its owner turns it on with shell.enabled").
			With("capability", string(wire.Shell)).With("required_capability", string(wire.Shell)).With("ceiling", "config")
	}
	if err := s.d.commands(ctx); err != nil {
		return nil, err
	}
	cwd := s.Root()
	if r.Cwd != nil {
		cwd = *r.Cwd
	}
	told := s.told(ctx, cwd)
	details := func(dir string, t shell.Trace) []audit.Field {
		keys := t.EnvKeys
		if keys == nil {
			keys = slices.Sorted(maps.Keys(r.Env))
		}
		return []audit.Field{
			audit.StringOrNull("command", r.Command), argvField(r.Argv), audit.String("shell", t.Shell), audit.String("cwd", dir),
			audit.Strings("env_keys", keys), audit.Float("timeout_seconds", t.Timeout.Seconds()),
		}
	}
	return change(s, c, told, details(told, shell.Trace{Shell: r.Shell}), func() (any, []audit.Field, error) {
		dir, canonical, err := s.root.OpenDir(ctx, cwd)
		if err != nil {
			return nil, details(told, shell.Trace{}), err
		}
		defer dir.Close()
		limits := s.Limits()
		run, done := s.d.running.add(ctx)
		defer done()
		result, t, err := s.d.shell.Execute(run, r, shell.Place{Dir: dir, Path: canonical}, shell.Limits{
			Timeout: limits.CommandTimeout, OutputBytes: limits.MaxFileSize, AnswerWithin: s.answerWithin(),
		})
		if err == nil { // what it says leaves if it couldn't read what is private
			err = errors.Join(context.Cause(run), s.d.mayGoOn(ctx))
		}
		if err != nil {
			return nil, details(canonical, t), err
		}
		return result, details(canonical, t), nil
	})
}

// answerWithin is how long the platform waits for a command's answer. A relay
// of ours, known by the grants it sends, waits as long as the command may take.
func (s *session) answerWithin() time.Duration {
	if s.Granted().Has(wire.Grants) {
		return 0
	}
	return wire.PlatformTimeout
}

func argvField(argv []string) audit.Field {
	if argv == nil {
		return audit.Null("argv")
	}
	return audit.Strings("argv", argv)
}

func (s *session) hardware(ctx context.Context, c *shim.Call, r wire.HardwareOp) (any, error) {
	if s.d.dispatch == nil {
		return nil, wire.Errorf(wire.FeatureNotSupported, "hardware is off on this machine").With("op", r.Op).With("feature", "hardware")
	}
	id := s.d.dispatch.CanonicalID(r.Device)
	details := func(t device.Trace) []audit.Field {
		if t.Device == "" {
			t.Device = id
		}
		fields := []audit.Field{
			audit.String("device", t.Device), audit.String("op", r.Op), audit.Bool("hold", r.Hold),
			audit.Int("bytes_out", t.BytesOut), audit.Int("bytes_in", t.BytesIn),
		}
		if len(t.Parts) > 0 {
			fields = append(fields, audit.Strings("lines", t.Parts))
		}
		return fields
	}
	var opened string // the stream, if there is one
	run := func() (any, []audit.Field, error) {
		by := device.Caller{
			Session: s.ID(), Holder: s.Holder(), Owner: s.Owner(), Streams: c.Granted().Has(wire.Streams),
			Allow: func(id, op string, parts []device.Part) error {
				c.Recheck(func(p *grant.Policy) error { return s.allowed(p, id, op, parts) })
				return s.allowed(s.Policy(), id, op, parts)
			},
		}
		answer, t, err := s.d.dispatch.Do(ctx, by, r)
		if err == nil {
			opened = s.d.begin(c, answer.Result)
		}
		return answer, details(t), err
	}
	var (
		answer any
		err    error
	)
	if s.d.dispatch.Effect(r.Device, r.Op) == device.ReadOnly {
		answer, err = look(s, c, "", run)
	} else {
		answer, err = change(s, c, "", details(device.Trace{}), run)
	}
	if err != nil && opened != "" { // not recorded: nobody learns its name
		s.d.streams.EndWhere(stream.ReasonFailed, func(i stream.Info) bool { return i.ID == opened })
	}
	return answer, err
}

// hardwareLane keeps operations on one device in the order of the wire,
// whatever name they call it by.
func (s *session) hardwareLane(c *shim.Call) string {
	var op wire.HardwareOp
	if s.d.dispatch == nil || wire.Decode(c.Payload, &op) != nil {
		return ""
	}
	return s.d.dispatch.CanonicalID(op.Device)
}

// openFile opens a file below the session's root for what else reads there: as
// FILE_READ it needs the files capability.
func (s *session) openFile(ctx context.Context, path string) (io.ReadCloser, int64, error) {
	f, size, err := s.openRegular(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	return f, size, nil
}

func (s *session) openRegular(ctx context.Context, path string) (*os.File, int64, error) {
	if !s.Granted().Has(wire.Files) {
		return nil, 0, wire.Errorf(wire.CapabilityNotGranted, "%s is not granted", wire.Files).
			With("capability", string(wire.Files)).With("required_capability", string(wire.Files))
	}
	policy := s.Policy()
	if err := errors.Join(policy.Capability(wire.Files), policy.Root(s.Root())); err != nil {
		return nil, 0, err
	}
	return s.root.OpenFile(ctx, path)
}

// allowed is asked before a device is touched, and again when the policy changes
// meanwhile: the family must be granted on this socket, and no ceiling may forbid
// the device, the line or the operation.
func (s *session) allowed(policy *grant.Policy, id, op string, parts []device.Part) error {
	need := family(id)
	if !s.Granted().Has(need) {
		return wire.Errorf(wire.CapabilityNotGranted, "%s is not granted", need).
			With("capability", string(need)).With("required_capability", string(need)).With("device", id)
	}
	if err := policy.Capability(need); err != nil {
		return err
	}
	if len(parts) == 0 {
		return policy.Device(id, op)
	}
	for _, part := range parts {
		if err := policy.Line(id, op, append([]string{part.Key}, part.Names...)); err != nil {
			return err
		}
	}
	return nil
}

// look runs an operation that only reads and records it before its answer
// leaves: what was not recorded is not told.
func look(s *session, c *shim.Call, path string, f func() (any, []audit.Field, error)) (any, error) {
	start := time.Now()
	answer, details, err := f()
	if e := s.record(c, path, details, time.Since(start), nil, err); e != nil {
		return nil, e
	}
	return answer, err
}

// change runs an operation that changes something: its intent is recorded
// before the effect, its outcome after it.
func change(s *session, c *shim.Call, path string, intent []audit.Field, f func() (any, []audit.Field, error)) (any, error) {
	entry := audit.Entry{
		SessionID: s.ID(), RequestID: c.ID, Op: string(c.Type),
		Details: append(intent, audit.String("phase", audit.PhaseIntent)),
		Result:  audit.Result{OK: true},
	}
	if err := s.d.audit.Append(entry); err != nil {
		return nil, err
	}
	start := time.Now()
	answer, details, err := f()
	var ended *wire.CommandResult
	if r, ok := answer.(wire.CommandResult); ok && err == nil {
		ended = &r
	}
	if e := s.record(c, path, details, time.Since(start), ended, err); e != nil {
		return nil, unrecorded(e, err)
	}
	return answer, err
}

func (s *session) record(c *shim.Call, path string, details []audit.Field, took time.Duration, ended *wire.CommandResult, err error) error {
	return s.recordAs(string(c.Type), c, path, details, took, ended, err)
}

func (s *session) recordAs(op string, c *shim.Call, path string, details []audit.Field, took time.Duration, ended *wire.CommandResult, err error) error {
	entry := audit.Entry{SessionID: s.ID(), RequestID: c.ID, Op: op, Details: details, Result: audit.ResultOf(err, took)}
	if ended != nil {
		entry.Result.ExitCode = &ended.ExitCode
	}
	if ended != nil && ended.TimedOut {
		entry.Result.OK, entry.Result.ErrorCode = false, wire.CommandTimeout
	}
	switch code := wire.CodeOf(err); code {
	case wire.PathOutsideAllowedRoot, wire.PathInvalidChars, wire.PathReservedName:
		entry.Op = audit.OpJailViolation
		entry.Details = []audit.Field{audit.String("code", string(code)), audit.String("path", s.violated(err, path)), audit.String("attempted_op", string(c.Type))}
	}
	return s.d.audit.Append(entry)
}

// violated is the path that broke out: of a move either end may be the one. Where
// something is private, it is as the error tells it.
func (s *session) violated(err error, path string) string {
	details, keys := wire.AsError(err).Details, []string{"dst", "src"}
	if s.d.private != nil {
		keys = append(keys, "path")
	}
	for _, key := range keys {
		if p, ok := details[key].(string); ok {
			return p
		}
	}
	return path
}

// unrecorded is the answer to an operation whose outcome can't be recorded: who
// asked must not take it for undone, and ask again. failed is how it went.
func unrecorded(err, failed error) error {
	e := wire.Errorf(wire.CodeOf(err), "done, but the outcome can't be recorded: the audit log can't be written")
	if failed != nil {
		e = wire.Errorf(wire.CodeOf(err), "failed (%s), and that can't be recorded: the audit log can't be written", wire.AsError(failed).Message)
	}
	return e.With("reason", "audit_unavailable").With("done", failed == nil)
}
