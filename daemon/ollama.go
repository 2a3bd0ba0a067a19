package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"farhand/audit"
	"farhand/config"
	"farhand/llm"
	"farhand/provision/request"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

const (
	// installPatience bounds an installation: a slow card takes minutes.
	installPatience = 30 * time.Minute
	// removePatience bounds a removal, of models that have gigabytes, too.
	removePatience = 5 * time.Minute
	// answerPatience is how long a server that was started may take to answer.
	answerPatience = 30 * time.Second
	lookEvery      = 500 * time.Millisecond
)

// localOllama is what this machine can tell of Ollama beside what Ollama says
// itself.
type localOllama struct{ root string } // empty: /

// installed says whether Ollama is here, and which archive it is from if it was
// installed by an image or by LLM_INSTALL.
func (l localOllama) installed() (id string, here bool) {
	const dir = "/data/ollama/"
	exists := func(name string) bool {
		info, err := os.Stat(filepath.Join(l.root, name))
		return err == nil && info.Mode().IsRegular()
	}
	to, err := os.Readlink(filepath.Join(l.root, dir, "current"))
	if id, ok := strings.CutPrefix(to, "versions/"); err == nil && ok && exists(dir+to+"/bin/ollama") {
		return id, true
	}
	return "", exists("/usr/local/bin/ollama") || exists("/usr/bin/ollama")
}

// runs says whether its unit has a process. What isn't known, because there is no
// systemd, counts as yes.
func (l localOllama) runs() bool {
	slice := filepath.Join(l.root, "/sys/fs/cgroup/system.slice")
	if _, err := os.Stat(slice); err != nil {
		return true
	}
	events, err := os.ReadFile(filepath.Join(slice, "ollama.service/cgroup.events"))
	return err == nil && strings.Contains(string(events), "populated 1")
}

// describe adds to a status what the machine knows: what is missing, and whether
// it could be installed.
func (l localOllama) describe(s *wire.LLMStatus, here, appliance bool) {
	installed := true // elsewhere, or of a kind that isn't looked for
	if here && s.Kind == llm.KindOllama {
		s.Installs = appliance
		s.Installed, installed = l.installed()
	}
	switch {
	case s.Reachable && len(s.Models) > 0:
		s.State = wire.LLMReady
	case s.Reachable:
		s.State = wire.LLMNoModel
	case !installed:
		s.State = wire.LLMNotInstalled
	case here && s.Kind == llm.KindOllama && !l.runs():
		s.State = wire.LLMStopped
	default:
		s.State = wire.LLMUnreachable
	}
}

// modelStatus is what serves models here, and what is missing.
func (d *services) modelStatus(ctx context.Context) (wire.LLMStatus, error) {
	s, err := d.llm.Status(ctx)
	if err == nil {
		localOllama{}.describe(&s, d.llm.OnThisMachine(), d.hasHelper())
	}
	return s, err
}

// installs refuses where Ollama can't be installed from afar.
func (s *session) installs() (*llm.Service, error) {
	service, err := s.model()
	switch {
	case err != nil:
		return nil, err
	case s.d.config.LLM.Kind != llm.KindOllama || !service.OnThisMachine():
		return nil, wire.Errorf(wire.FeatureNotSupported, "this machine's models are served by %s at %s (llm.kind, llm.url), which isn't installed from here", s.d.config.LLM.Kind, s.d.config.LLM.URL).
			With("feature", "llm_install")
	case !s.d.hasHelper():
		return nil, notAppliance()
	}
	return service, nil
}

func notAppliance() *wire.Error {
	const hint = "install Ollama with its maker's installer or your distribution's package, and have it listen where llm.url says"
	return wire.Errorf(wire.FeatureNotSupported, "this machine is no appliance, so nothing is installed on it from here: %s", hint).
		With("feature", "llm_install").With("hint", hint)
}

// install begins to have Ollama be what an archive holds and answers with a stream
// about it. What needs root the helper does.
func (s *session) install(ctx context.Context, c *shim.Call, r wire.LLMInstall) (any, error) {
	service, err := s.installs()
	if err != nil {
		return nil, err
	}
	if err := s.mayReplaceServer(c); err != nil {
		return nil, err
	}
	sum := strings.ToLower(r.SHA256)
	if !isSHA256(sum) {
		return nil, wire.Errorf(wire.InvalidArgument, "sha256 must be 64 hexadecimal digits").With("field", "sha256")
	}
	details := []audit.Field{audit.String("path", s.told(ctx, r.Path)), audit.String("sha256", sum)}
	return change(s, c, r.Path, details, func() (any, []audit.Field, error) {
		archive, size, err := s.openRegular(ctx, r.Path)
		if err != nil {
			return nil, details, err
		}
		st, err := s.d.streams.Open(stream.Options{
			Owner: caller(c), Records: true, Credit: r.Credit, Op: string(c.Type), Capability: wire.LLMManage,
		})
		if err != nil {
			return nil, details, errors.Join(err, archive.Close())
		}
		release := s.Hold()
		s.d.pulls.running.Go(func() {
			defer release()
			defer archive.Close()
			streaming(st, func(ctx context.Context) error {
				i := installation{service: service, helper: request.Client{Path: s.d.config.ProvisionSocket, Timeout: installPatience}, st: st}
				if err := i.run(ctx, archive, size, sum); err != nil {
					return err
				}
				if _, err := s.root.Delete(ctx, wire.FileDelete{Path: r.Path, MissingOK: true}); err != nil {
					s.d.log.Warn("the archive of an installation stays", "error", err)
				}
				return nil
			})
		})
		answer := wire.LLMPulling{Stream: st.ID()}
		s.d.begin(c, answer)
		return answer, append(details, audit.Int("size_bytes", size), audit.String("stream", st.ID())), nil
	})
}

func isSHA256(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// installation is one that runs.
type installation struct {
	service *llm.Service
	helper  request.Client
	st      *stream.Stream
}

func (i *installation) run(ctx context.Context, archive *os.File, size int64, sum string) error {
	if err := i.unpack(ctx, archive, size, sum); err != nil {
		return ollamaError(err)
	}
	if err := i.answers(ctx); err != nil {
		return err
	}
	return i.st.Record(wire.LLMProgress{Status: "success"})
}

// unpack has the helper do it, and tells how far it is: it reads from the same open
// file, whose place is shared.
func (i *installation) unpack(ctx context.Context, archive *os.File, size int64, sum string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- i.helper.InstallOllama(ctx, request.InstallOllama{SHA256: sum}, archive) }()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	told := int64(-1)
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
		}
		at, err := archive.Seek(0, io.SeekCurrent)
		if err != nil || at == told {
			continue
		}
		p := wire.LLMProgress{Status: "unpacking", TotalBytes: size, CompletedBytes: at}
		if told = at; at >= size {
			p = wire.LLMProgress{Status: "starting"}
		}
		if err := i.st.Record(p); err != nil { // it has ended: nobody wants it any more
			cancel()
			return errors.Join(err, <-done)
		}
	}
}

// answers waits until the server that was started does.
func (i *installation) answers(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		s, err := i.service.Status(limited)
		if err == nil && s.Reachable {
			return nil
		}
		select {
		case <-look.C:
			continue
		case <-limited.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return wire.Errorf(wire.LocalLLMFailed, "Ollama is installed and runs, and doesn't answer: %s", s.Reason).With("reason", "unreachable")
	}
}

func (s *session) uninstall(ctx context.Context, c *shim.Call, r wire.LLMUninstall) (any, error) {
	if _, err := s.installs(); err != nil {
		return nil, err
	}
	details := []audit.Field{audit.Bool("models", r.Models)}
	return change(s, c, "", details, func() (any, []audit.Field, error) {
		helper := request.Client{Path: s.d.config.ProvisionSocket, Timeout: removePatience}
		err := ollamaError(helper.RemoveOllama(ctx, request.RemoveOllama{Models: r.Models}))
		return wire.Ack{OK: true}, details, err
	})
}

// ollamaError is what the helper said in the protocol's codes.
func ollamaError(err error) error {
	var e *request.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, request.ErrNoHelper):
		return notAppliance()
	case !errors.As(err, &e):
		return wire.Errorf(wire.LocalLLMFailed, "%v", err).With("reason", "install_failed")
	}
	switch e.Code {
	case request.Refused, request.Malformed:
		return wire.Errorf(wire.InvalidArgument, "%s", e.Message).With("field", "path")
	case request.NoRoom:
		return wire.Errorf(wire.DiskFull, "%s", e.Message)
	case request.Unknown:
		return wire.Errorf(wire.FeatureNotSupported, "this machine's system is too old to have Ollama installed from here").With("feature", "llm_install")
	case request.Unavailable:
		return wire.Errorf(wire.LocalLLMFailed, "%s", e.Message).With("reason", "unavailable")
	}
	return wire.Errorf(wire.LocalLLMFailed, "%s", e.Message).With("reason", "install_failed")
}

// LLMStatus is how the local model's server is, for who stands beside the machine.
type LLMStatus struct {
	On    bool   `json:"on"`
	State string `json:"state,omitempty"` // one of wire's LLM constants
	Words string `json:"words"`
}

// modelState says in words how the local model's server is and what to do.
func modelState(s wire.LLMStatus, c config.LLM) LLMStatus {
	name := s.Kind
	if s.Version != "" {
		name += " " + s.Version
	}
	out := LLMStatus{On: true, State: s.State}
	switch s.State {
	case wire.LLMReady:
		out.Words = fmt.Sprintf("%s runs, models: %d", name, len(s.Models))
	case wire.LLMNoModel:
		out.Words = fmt.Sprintf("%s runs and has no model; farhand llm pull gets one", name)
	case wire.LLMStopped:
		out.Words = fmt.Sprintf("%s is installed and doesn't run; its unit is ollama.service", name)
	case wire.LLMNotInstalled:
		out.Words = fmt.Sprintf("%s isn't installed; its maker's installer does that", name)
		if s.Installs {
			out.Words = fmt.Sprintf("%s isn't installed; farhand llm install does that", name)
		}
	default:
		out.Words = fmt.Sprintf("%s doesn't answer at %s: %s", name, c.URL, s.Reason)
	}
	return out
}

// modelWords is modelState of what there is now.
func (d *services) modelWords(ctx context.Context) LLMStatus {
	if d.llm == nil {
		return LLMStatus{Words: "off"}
	}
	s, err := d.modelStatus(ctx)
	if err != nil {
		return LLMStatus{On: true, Words: err.Error()}
	}
	return modelState(s, d.config.LLM)
}

// checkModels judges the local model's server; running is nil without a daemon.
func checkModels(ctx context.Context, c config.Config, running *Status) Finding {
	f := Finding{Level: Info, About: "local model", Found: "off"}
	if !c.LLM.Enabled {
		return f
	}
	var s LLMStatus
	if running != nil {
		s = running.LLM
	} else {
		service, err := llm.New(llm.Config{Kind: c.LLM.Kind, URL: c.LLM.URL.String()})
		if err != nil {
			return Finding{Level: Fail, About: f.About, Found: err.Error()}
		}
		defer service.Close()
		d := services{config: c, llm: service}
		s = d.modelWords(ctx)
	}
	f.Found = s.Words
	switch s.State {
	case wire.LLMReady:
		f.Level = OK
	case wire.LLMNotInstalled, wire.LLMStopped, wire.LLMUnreachable:
		f.Level = Warn
	}
	return f
}
