package llm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"farhand/wire"
)

const (
	// runnerBytes is what the process takes that runs a model, beside weights and
	// cache: 44 MB were measured with Ollama 0.17 and a model of 3 MB.
	runnerBytes = 64 << 20
	// unloadTime is how long the server may take to give a model's memory back.
	unloadTime = 10 * time.Second
	unloadLook = 100 * time.Millisecond
)

// makeRoom sees to it that the model can be loaded on this board: others are sent
// out of memory first, and one that would not fit is refused with figures, since
// loading it would end in swapping for minutes or in the kernel killing the
// server. A server elsewhere, or one that doesn't say what it needs, is trusted.
func (s *Service) makeRoom(ctx context.Context, name string) error {
	m, ok := s.backend.(manager)
	if !ok || s.available == nil {
		return nil
	}
	loaded, err := m.loaded(ctx)
	if err != nil {
		return nil // it will fail by itself, with a better reason
	}
	var others []string
	for _, l := range loaded {
		if sameModel(l.Name, name) {
			return nil
		}
		others = append(others, l.Name)
	}
	if err := s.sendOut(ctx, m, others); err != nil {
		return err
	}
	need, err := s.need(ctx, m, name)
	if err != nil || need == 0 {
		return nil
	}
	if have, err := s.available(); err == nil && need > have {
		return tooLarge(name, need, have)
	}
	return nil
}

func tooLarge(model string, need, have int64) error {
	text := fmt.Sprintf("model %q needs about %d MiB of memory and %d MiB are free; use a smaller model or llm.context_tokens", model, need>>20, have>>20)
	return failed("insufficient_memory", text).With("backend_error", excerpt(text)).
		With("needed_bytes", need).With("available_bytes", have)
}

// sendOut unloads models and waits until the server has done so. One that was removed
// while it was in memory can't be named any more; it goes when its time is over.
func (s *Service) sendOut(ctx context.Context, m manager, names []string) error {
	var going []string
	for _, name := range names {
		err := m.unload(ctx, name)
		if refusal, ok := errors.AsType[*backendError](err); ok && refusal.status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return fmt.Errorf("send model %q out of memory: %w", name, err)
		}
		going = append(going, name)
	}
	if len(going) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, unloadTime, errors.New("the server doesn't give the memory of other models back"))
	defer cancel()
	look := time.NewTicker(unloadLook)
	defer look.Stop()
	for {
		left, err := m.loaded(ctx)
		if err == nil && !slices.ContainsFunc(left, func(l Loaded) bool { return slices.Contains(going, l.Name) }) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// need is about how many bytes the model takes when it is loaded; 0: not known.
func (s *Service) need(ctx context.Context, m manager, name string) (int64, error) {
	for _, known := range s.models.known() {
		if !sameModel(known.Name, name) || known.Size <= 0 {
			continue
		}
		perToken, err := m.cacheBytes(ctx, known.Name)
		if err != nil {
			return 0, err
		}
		return known.Size + perToken*int64(s.context) + runnerBytes, nil
	}
	return 0, nil
}

// availableMemory is what can be had without swapping, bytes: MemAvailable of
// proc(5).
func availableMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return parseAvailable(f)
}

func parseAvailable(r io.Reader) (int64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil || kib < 0 || kib > 1<<40 {
			return 0, fmt.Errorf("MemAvailable is %q", value)
		}
		return kib << 10, nil
	}
	return 0, errors.Join(errors.New("no MemAvailable"), lines.Err())
}

// failed is LOCAL_LLM_FAILED with the reason, for those who don't read prose.
func failed(reason, text string) *wire.Error {
	return wire.Errorf(wire.LocalLLMFailed, "%s", excerpt(text)).With("reason", reason)
}
