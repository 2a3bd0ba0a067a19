package daemon

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/config"
	"farhand/llm"
	"farhand/llm/llmtest"
	"farhand/provision/request"
	"farhand/wire"
)

// made is a machine in a directory with these files; a content of -> is a link.
func made(t *testing.T, files map[string]string) localOllama {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, name)
		} else {
			err = os.WriteFile(name, []byte(content), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return localOllama{root}
}

func TestModelState(t *testing.T) {
	const (
		link    = "data/ollama/current"
		program = "data/ollama/versions/0123456789ab/bin/ollama"
		events  = "sys/fs/cgroup/system.slice/ollama.service/cgroup.events"
	)
	up, empty := "populated 1\nfrozen 0\n", "populated 0\nfrozen 0\n"
	there := map[string]string{link: "-> versions/0123456789ab", program: "x", events: up}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{there, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	one := []wire.LLMModel{{Name: "tiny:1b"}}
	for name, c := range map[string]struct {
		files           map[string]string
		s               wire.LLMStatus
		here, appliance bool
		state, id       string
		words           string
	}{
		"all is well":          {there, wire.LLMStatus{Reachable: true, Models: one, Version: "0.17.4"}, true, true, wire.LLMReady, "0123456789ab", "ollama 0.17.4 runs, models: 1"},
		"no model":             {there, wire.LLMStatus{Reachable: true}, true, true, wire.LLMNoModel, "0123456789ab", "farhand llm pull"},
		"not running":          {with(map[string]string{events: empty}), wire.LLMStatus{}, true, true, wire.LLMStopped, "0123456789ab", "doesn't run"},
		"running, and mute":    {there, wire.LLMStatus{Reason: "refused"}, true, true, wire.LLMUnreachable, "0123456789ab", "refused"},
		"nothing":              {map[string]string{"sys/fs/cgroup/system.slice/x": ""}, wire.LLMStatus{}, true, true, wire.LLMNotInstalled, "", "farhand llm install"},
		"a link to nothing":    {map[string]string{link: "-> versions/0123456789ab"}, wire.LLMStatus{}, true, true, wire.LLMNotInstalled, "", "farhand llm install"},
		"nothing on a Debian":  {nil, wire.LLMStatus{}, true, false, wire.LLMNotInstalled, "", "maker's installer"},
		"stopped on a Debian":  {map[string]string{"usr/local/bin/ollama": "x", "sys/fs/cgroup/system.slice/x": ""}, wire.LLMStatus{}, true, false, wire.LLMStopped, "", "doesn't run"},
		"without systemd":      {map[string]string{"usr/bin/ollama": "x"}, wire.LLMStatus{}, true, false, wire.LLMUnreachable, "", "doesn't answer"},
		"elsewhere":            {nil, wire.LLMStatus{}, false, true, wire.LLMUnreachable, "", "doesn't answer"},
		"another kind, silent": {nil, wire.LLMStatus{Kind: llm.KindOpenAI}, true, true, wire.LLMUnreachable, "", "openai doesn't answer"},
	} {
		if c.s.Kind == "" {
			c.s.Kind = llm.KindOllama
		}
		l := made(t, c.files)
		l.describe(&c.s, c.here, c.appliance)
		if c.s.State != c.state || c.s.Installed != c.id || c.s.Installs != (c.here && c.appliance && c.s.Kind == llm.KindOllama) {
			t.Errorf("%s: %+v, want %s and %q", name, c.s, c.state, c.id)
		}
		if got := modelState(c.s, config.LLM{URL: &url.URL{Host: "here"}}); !got.On || got.State != c.state || !strings.Contains(got.Words, c.words) {
			t.Errorf("%s: %+v, want %q", name, got, c.words)
		}
	}
}

func TestDoctorLooksAtModels(t *testing.T) {
	if f := checkModels(t.Context(), config.Config{}, nil); f.Level != Info || f.Found != "off" {
		t.Errorf("%+v", f)
	}
	at := func(u string) config.Config {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		return config.Config{LLM: config.LLM{Enabled: true, Kind: llm.KindOllama, URL: parsed}}
	}
	if f := checkModels(t.Context(), at(llmtest.Start(t, "tiny:1b").URL), nil); f.Level != OK || !strings.Contains(f.Found, "models: 1") {
		t.Errorf("%+v", f)
	}
	if f := checkModels(t.Context(), at("http://127.0.0.1:1"), nil); f.Level != Warn {
		t.Errorf("%+v", f)
	}
	if f := checkModels(t.Context(), at("http://127.0.0.1:1"), &Status{LLM: LLMStatus{On: true, State: wire.LLMReady, Words: "fine"}}); f.Level != OK || f.Found != "fine" {
		t.Errorf("%+v", f)
	}
}

func TestOllamaErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   wire.Code
		reason any
	}{
		{request.ErrNoHelper, wire.FeatureNotSupported, nil},
		{&request.Error{Code: request.Unknown}, wire.FeatureNotSupported, nil},
		{&request.Error{Code: request.Refused, Message: "no"}, wire.InvalidArgument, nil},
		{&request.Error{Code: request.Malformed, Message: "no"}, wire.InvalidArgument, nil},
		{&request.Error{Code: request.NoRoom, Message: "full"}, wire.DiskFull, nil},
		{&request.Error{Code: request.Unavailable, Message: "later"}, wire.LocalLLMFailed, "unavailable"},
		{&request.Error{Code: request.Failed, Message: "odd"}, wire.LocalLLMFailed, "install_failed"},
		{context.DeadlineExceeded, wire.LocalLLMFailed, "install_failed"},
	} {
		e := wire.AsError(ollamaError(errors.Join(c.err)))
		if e.Code != c.code || e.Details["reason"] != c.reason {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
	if ollamaError(nil) != nil {
		t.Error("no error is one")
	}
}
