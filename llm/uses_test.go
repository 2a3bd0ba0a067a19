package llm

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

func said(wire.LocalLLMChunk) error { return nil }

// A model that becomes one of another machine's while a turn waits gets nothing.
func TestRemoteByTheTimeOfItsTurn(t *testing.T) {
	leak.Check(t)
	began, finish := make(chan struct{}), make(chan struct{})
	o := serve(t, func(c *chatCall) {
		close(began)
		<-finish
		c.done("stop")
	})
	s := newService(t, o.URL, Config{})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := s.Complete(t.Context(), ask("tiny:1b"), said)
		first <- err
	}()
	<-began
	waits := make(chan struct{})
	go func() {
		_, _, err := s.CompletePrivate(t.Context(), Private{Model: "tiny:1b", User: "secret", MostChars: 10, Wait: true}, func(string, int) error {
			close(waits)
			return nil
		})
		second <- err
	}()
	<-waits
	o.mu.Lock()
	o.tags = func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"models":[{"name":"tiny:1b","remote_model":"tiny","remote_host":"https://elsewhere.example"}]}`)
	}
	o.mu.Unlock()
	close(finish)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if e := wire.AsError(<-second); e.Code != wire.ModelNotAvailable || e.Details["reason"] != "remote_model" {
		t.Errorf("the turn ends with %v %v", e, e.Details)
	}
	if len(o.requests) != 1 {
		t.Errorf("the server was given %v", o.requests)
	}
}

// A model isn't fetched while it works on something private, and gets nothing
// private while it is fetched, by whichever of its names.
func TestFetchedOrPrivate(t *testing.T) {
	leak.Check(t)
	began, finish := make(chan string), make(chan struct{})
	o := serve(t, func(c *chatCall) {
		began <- "chat"
		<-finish
		c.done("stop")
	})
	o.Config.Handler.(*http.ServeMux).HandleFunc("POST /api/pull", func(w http.ResponseWriter, r *http.Request) {
		began <- "pull"
		<-finish
		fmt.Fprintln(w, `{"status":"success"}`)
	})
	s := newService(t, o.URL, Config{})
	pull := func(name string) error {
		return s.Pull(t.Context(), name, func(wire.LLMProgress) error { return nil })
	}
	turn := func(name string) error {
		_, _, err := s.CompletePrivate(t.Context(), Private{Model: name, User: "secret", MostChars: 10}, nil)
		return err
	}
	refused := func(what string, err error, reason string) {
		t.Helper()
		if e := wire.AsError(err); e.Code != wire.LocalLLMBusy || e.Details["reason"] != reason {
			t.Errorf("%s: %v", what, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- turn("tiny:1b") }()
	<-began
	for _, name := range []string{"tiny:1b", "tiny", "TINY:latest", "registry.example/library/tiny:1b", "library/Tiny@sha256:00"} {
		refused("fetching "+name+" while it works", pull(name), "private")
	}
	other := make(chan error, 1)
	go func() { other <- pull("another") }()
	if got := <-began; got != "pull" {
		t.Fatal(got)
	}
	finish <- struct{}{}
	finish <- struct{}{}
	for _, c := range []chan error{done, other} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	go func() { done <- pull("registry.example/library/tiny:1b") }()
	<-began
	refused("a turn while it is fetched", turn("tiny:1b"), "fetching")
	finish <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(s.uses.all) != 0 {
		t.Errorf("uses that never end: %v", s.uses.all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Pull(ctx, "tiny", func(wire.LLMProgress) error { return nil }); err == nil || len(s.uses.all) != 0 {
		t.Errorf("given up: %v, %v", err, s.uses.all)
	}
}
