package llm

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// models remembers what the server has.
type models struct {
	turn chan struct{} // holds one element while somebody asks

	mu    sync.Mutex
	names []string
	err   error
	asked time.Time // zero: never
}

// Models are the names of the models that the server has, in its order, asked
// for at most every 30 seconds and within 2. The error says why there are none.
func (s *Service) Models(ctx context.Context) ([]string, error) {
	return s.models.probe(ctx, s, false)
}

// known are the models that the last successful probe found.
func (m *models) known() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names
}

// probe asks, unless somebody did lately. With now, lately means since the call.
func (m *models) probe(ctx context.Context, s *Service, now bool) ([]string, error) {
	since := time.Now()
	if !now {
		since = since.Add(-probeFresh)
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	m.mu.Lock()
	names, err, fresh := m.names, m.err, m.asked.After(since)
	m.mu.Unlock()
	if fresh {
		return names, err
	}
	asked := time.Now()
	names, err = s.list(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // says nothing about the server
	}
	m.mu.Lock()
	m.names, m.err, m.asked = names, err, asked
	m.mu.Unlock()
	return names, err
}

func (s *Service) list(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := s.client.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list models of Ollama at %s: %w", s.host, err)
	}
	names := make([]string, 0, len(answer.Models))
	for _, m := range answer.Models {
		if presentable(m.Name) && len(names) < maxModels {
			names = append(names, m.Name)
		}
	}
	return names, nil
}

// presentable says whether a name may stand in HELLO.
func presentable(name string) bool {
	if name == "" || len(name) > maxModelName || !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) || r == '<' || r == '>' {
			return false
		}
	}
	return true
}
