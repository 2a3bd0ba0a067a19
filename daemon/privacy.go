package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"farhand/audit"
	"farhand/config"
	"farhand/files"
	"farhand/privacy/schema"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

// What the owner marked private stays on the machine. Files see to what goes
// through them (files.Private); here are the doors beside them, which are closed
// for the machine and not for a session, since sessions share it.

func (d *services) openPrivate(ctx context.Context, o Options) error {
	var rules []files.PrivateRule
	for _, p := range o.Config.Privacy.Private {
		rules = append(rules, files.PrivateRule(p))
	}
	d.private = files.NewPrivate(rules)
	d.closers = append(d.closers, d.private)
	d.releases = newReleases(o.Config.Privacy.ReleaseTimeout)
	mended, err := d.private.Sealed(ctx, true)
	d.wasOpen = mended
	if open, ok := errors.AsType[*files.NotSealed](err); ok {
		d.log.Warn("what is private is not sealed, so others on this machine may read it", "why", open.Error(), "do", open.Do)
	}
	return nil
}

// checkRoot says whether a directory, by its canonical path, may be offered as a
// root: what the owner's own list of roots names may be whatever else it is.
func (d *services) checkRoot(path string) error {
	if err := d.forbidden.CheckRoot(path); err != nil {
		return err
	}
	if d.private == nil || slices.Contains(d.config.Roots, path) {
		return nil
	}
	return d.private.CheckRoot(path)
}

// commands says why no command may run, nil if one may. It is asked at each request,
// since what is sealed now may not be so later. Where none may run none goes on
// either, nor what ran while something was open that had to be closed.
func (d *services) commands(ctx context.Context) error {
	if d.private == nil || d.shell == nil {
		return nil
	}
	mended, err := d.keptFromCommands(ctx)
	switch {
	case errors.Is(err, wire.PrivacyModeBlocked):
		d.sealed.Store(nil)
		d.endCommands(err.Error())
	case mended:
		d.endCommands("it was open to others, and was closed")
	}
	if err == nil {
		now := time.Now()
		d.sealed.Store(&now)
	}
	return err
}

// keptFromCommands says whether commands can't get at what is private, and mended
// whether that is so since now: whoever runs commands as the daemon's user, or as
// root, reads everything.
func (d *services) keptFromCommands(ctx context.Context) (mended bool, err error) {
	const closed = "commands are off while something on this machine is private: "
	if d.helper == nil {
		return false, wire.Errorf(wire.PrivacyModeBlocked, closed+"they would run as the user that reads it").With("reason", "commands_run_as_daemon")
	}
	asking, cancel := context.WithTimeout(ctx, helperPatience)
	defer cancel()
	info, err := d.helper.Info(asking)
	switch {
	case err != nil:
		return false, err
	case info.UID == os.Getuid():
		return false, wire.Errorf(wire.PrivacyModeBlocked, closed+"they would run as the user that reads it").With("reason", "commands_run_as_daemon")
	case !info.Confined:
		return false, wire.Errorf(wire.PrivacyModeBlocked, closed+"they may become root").With("reason", "commands_may_become_root")
	}
	mended, err = d.private.Sealed(ctx, true) // which knows for how long it looks, and what it means to have seen too little
	if open, ok := errors.AsType[*files.NotSealed](err); ok {
		err = wire.Errorf(wire.PrivacyModeBlocked, closed+"it is not sealed").With("reason", "not_sealed").With("path", open.Told).
			With("hint", "its owner sees with farhandd doctor what to do")
	}
	return mended, err
}

// running are the commands of EXECUTE_COMMAND that run.
type running struct {
	mu  sync.Mutex
	all map[*context.CancelCauseFunc]struct{}
}

// add makes the context of one, which end ends. done is called when it is over.
func (r *running) add(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*context.CancelCauseFunc]struct{})
	}
	r.all[&cancel] = struct{}{}
	return ctx, func() {
		r.mu.Lock()
		delete(r.all, &cancel)
		r.mu.Unlock()
		cancel(nil)
	}
}

// end ends those that run, and says how many these are.
func (r *running) end(why error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cancel := range r.all {
		(*cancel)(why)
	}
	return len(r.all)
}

// endCommands ends what runs, and what it said goes nowhere: it may have read what
// is private.
func (d *services) endCommands(why string) {
	n := d.running.end(wire.Errorf(wire.PrivacyModeBlocked, "the command was ended: what is private was open to it").With("reason", "not_sealed"))
	if d.terminals != nil {
		n += d.terminals.Running()
		d.terminals.Discard(stream.ReasonGrantRevoked)
	}
	if n > 0 {
		d.log.Warn("what ran was ended, since it could have read what is private", "commands", n, "why", why)
	}
}

// lately is how old the answer to whether commands may run may be for what comes
// with every key that is typed.
const lately = time.Second

// mayGoOn is commands for what runs already.
func (d *services) mayGoOn(ctx context.Context) error {
	if at := d.sealed.Load(); at != nil && time.Since(*at) < lately {
		return nil
	}
	return d.commands(ctx)
}

const (
	// sealEvery is how often it is looked whether what runs may go on, whatever is
	// seen to change meanwhile.
	sealEvery = 15 * time.Second
	// sealPause lies between two looks because something changed.
	sealPause = 100 * time.Millisecond
)

// keepSealed ends what runs once what is private is no longer sealed.
func (d *daemon) keepSealed(ctx context.Context) {
	if d.private == nil || d.shell == nil {
		return
	}
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		err := d.private.Watch(ctx, func() {
			d.sealed.Store(nil)
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err != nil {
			d.log.Warn("what others open of what is private is noticed late", "after", sealEvery, "error", err)
		}
	})
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	for {
		_ = d.commands(ctx) // does what is to be done
		select {
		case <-time.After(sealPause):
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// PrivacyStatus says what comes of the owner's list of what is private.
type PrivacyStatus struct {
	Rules int `json:"rules"`
	// Commands says why commands and terminals are off because of it, and Do what
	// would mend that; both are empty if they may run, or are off anyway.
	Commands string `json:"commands,omitempty"`
	Do       string `json:"do,omitempty"`
	Waiting  int    `json:"waiting_answers"` // for farhandd release
}

// privacyStatus is nil if nothing is private.
func (d *services) privacyStatus() *PrivacyStatus {
	if d.private == nil {
		return nil
	}
	s := &PrivacyStatus{Rules: len(d.config.Privacy.Private), Waiting: len(d.releases.list())}
	ctx, cancel := context.WithTimeout(context.Background(), 2*helperPatience)
	defer cancel()
	err := d.commands(ctx)
	if err == nil || !errors.Is(err, wire.PrivacyModeBlocked) {
		return s
	}
	s.Commands = err.Error()
	switch wire.AsError(err).Details["reason"] {
	case "commands_run_as_daemon":
		s.Do = "have commands run as another user (farhandd install --helper)"
	case "commands_may_become_root":
		s.Do = "take sudo and groups like docker or disk from the user that commands run as, and set NoNewPrivileges=yes for farhand-exec.service"
	default:
		_, err := d.private.Sealed(ctx, false)
		if open, ok := errors.AsType[*files.NotSealed](err); ok {
			s.Commands, s.Do = "commands are off, since "+open.Error(), open.Do
		}
	}
	return s
}

// vetModel says whether a connection leads to a server on this machine that isn't
// the commands' own: whoever runs commands could listen in the server's place.
func (d *services) vetModel(conn net.Conn) error {
	to, ok := conn.RemoteAddr().(*net.TCPAddr)
	from, _ := conn.LocalAddr().(*net.TCPAddr) // of the same kind
	if !ok || !to.IP.IsLoopback() {
		return errors.New("the model's server is not on this machine's loopback")
	}
	if d.shell == nil || d.helper == nil {
		return nil // nobody runs commands
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperPatience)
	defer cancel()
	info, err := d.helper.Info(ctx)
	if err != nil {
		return fmt.Errorf("who runs commands isn't known: %w", err)
	}
	owners, err := servers(to, from)
	switch {
	case err != nil:
		return fmt.Errorf("whose the model's server is can't be found out: %w", err)
	case len(owners) == 0:
		return errors.New("whose the model's server is can't be found out")
	case slices.Contains(owners, info.UID):
		return errors.New("the user that commands run as listens in the place of the model's server")
	}
	return nil
}

// stubs are those of one session.
type stubs struct {
	mu    sync.Mutex
	byID  map[string]*files.Stub
	order []string // the oldest first
}

// maxStubs bounds them.
const maxStubs = 256

func (s *stubs) add(x *files.Stub) (id string) {
	id = "stub_" + randomHex(16)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = make(map[string]*files.Stub)
	}
	if len(s.order) == maxStubs {
		delete(s.byID, s.order[0])
		s.order = s.order[1:]
	}
	s.byID[id], s.order = x, append(s.order, id)
	return id
}

func (s *stubs) find(id string) (*files.Stub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.byID[id]; x != nil {
		return x, nil
	}
	return nil, wire.Errorf(wire.StubStale, "there is no such stub in this session").
		With("stub_id", wire.Clean(id, 64)).With("hint", `ask for another one: FILE_READ with mode "stub"`)
}

// stub answers FILE_READ in mode stub.
func (s *session) stub(ctx context.Context, c *shim.Call, r wire.FileRead) (any, error) {
	start := time.Now()
	var built wire.SchemaPreview
	x, t, err := s.root.Stub(ctx, r.Path, func(ctx context.Context, content io.ReaderAt, size int64, mime string, named bool) (err error) {
		built, err = schema.Preview(ctx, content, size, schema.Options{MIMEType: mime, Named: named})
		return err
	})
	digest, size := "", int64(0)
	if err == nil {
		digest, size = x.Digest, x.Size
	}
	details := []audit.Field{
		audit.String("path", t.Path), audit.String("hmac_sha256", digest), audit.Int("size_bytes", size), audit.String("mode", wire.ModeStub),
	}
	if e := s.recordAs(audit.OpFileReadStub, c, t.Path, details, time.Since(start), nil, err); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return &wire.FileContents{Stub: &wire.FileStub{
		Mode: wire.ModeStub, Path: x.Path, SizeBytes: x.Size, MIMEType: x.MIME, HMAC: x.Digest, StubID: s.stubs.add(x), SchemaPreview: &built,
	}}, nil
}

// told is a path as it may stand in the record.
func (s *session) told(ctx context.Context, path string) string {
	if s.d.private == nil {
		return path
	}
	return s.root.Shown(ctx, path)
}

// typed is text of a request that may hold names, as it may stand in the record.
func (s *session) typed(text string) string {
	if s.d.private != nil && text != "" {
		return "…"
	}
	return text
}

// mayReplaceServer refuses whoever isn't the owner to bring the program that private
// files are given to.
func (s *session) mayReplaceServer(c *shim.Call) error {
	by := caller(c)
	if s.d.private == nil || by.Owner != "" && by.Holder == by.Owner {
		return nil
	}
	return wire.Errorf(wire.PrivacyModeBlocked, "while something on this machine is private, only its owner's own login installs what serves its models").With("reason", "model_server")
}

// noLogs refuses the journal where something is private: programs quote what they
// read.
func (d *services) noLogs() error {
	if d.private == nil {
		return nil
	}
	return wire.Errorf(wire.PrivacyModeBlocked, "the journal isn't read while something on this machine is private: it may quote it").With("reason", "logs")
}

// checkPrivacy asks the running daemon, if there is one: what it may read others
// may not.
func checkPrivacy(ctx context.Context, c config.Config, running *Status) []Finding {
	rules := len(c.Privacy.Private)
	if running != nil && running.Privacy != nil {
		s := running.Privacy
		if s.Commands != "" {
			return []Finding{{Level: Warn, About: "privacy", Found: s.Commands, Do: s.Do}}
		}
		found := fmt.Sprintf("%d entries of privacy.private", s.Rules)
		if s.Waiting > 0 {
			return []Finding{{Level: Info, About: "privacy", Found: fmt.Sprintf("%s; %d answers wait to be let go", found, s.Waiting), Do: "farhandd release"}}
		}
		return []Finding{{Level: OK, About: "privacy", Found: found}}
	}
	switch {
	case rules == 0:
		return nil
	case running != nil:
		return []Finding{{Level: Fail, About: "privacy", Found: "the running daemon knows nothing of privacy.private", Do: "restart it"}}
	case !c.ShellEnabled:
		return []Finding{{Level: OK, About: "privacy", Found: fmt.Sprintf("%d entries of privacy.private", rules)}}
	case c.ShellHelper == "":
		return []Finding{{Level: Warn, About: "privacy", Found: "commands will be off: they would run as the user that reads what is private", Do: "have commands run as another user (farhandd install --helper)"}}
	}
	private := make([]files.PrivateRule, rules)
	for i, p := range c.Privacy.Private {
		private[i] = files.PrivateRule(p)
	}
	entries := files.NewPrivate(private)
	defer entries.Close()
	_, err := entries.Sealed(ctx, false)
	if open, ok := errors.AsType[*files.NotSealed](err); ok {
		return []Finding{{Level: Warn, About: "privacy", Found: "commands will be off: " + open.Error(), Do: open.Do}}
	}
	return []Finding{{Level: OK, About: "privacy", Found: fmt.Sprintf("%d entries of privacy.private, sealed", rules)}}
}
