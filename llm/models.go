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
	list  []Model
	err   error
	asked time.Time // zero: never
}

// Models are the names of the models that the server has, in its order, asked
// for at most every 30 seconds and within 2. The error says why there are none.
func (s *Service) Models(ctx context.Context) ([]string, error) {
	list, err := s.models.probe(ctx, s, false)
	return namesOf(list), err
}

func namesOf(list []Model) []string {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.Name
	}
	return names
}

// known are the models that the last successful probe found.
func (m *models) known() []Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list
}

// probe asks, unless somebody did lately. With now, lately means since the call.
func (m *models) probe(ctx context.Context, s *Service, now bool) ([]Model, error) {
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
	list, err, fresh := m.list, m.err, m.asked.After(since)
	m.mu.Unlock()
	if fresh {
		return list, err
	}
	asked := time.Now()
	list, err = s.list(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // says nothing about the server
	}
	m.mu.Lock()
	m.list, m.err, m.asked = list, err, asked
	m.mu.Unlock()
	return list, err
}

func (s *Service) list(ctx context.Context) ([]Model, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := s.backend.models(ctx)
	if err != nil {
		return nil, fmt.Errorf("list models of %s at %s: %w", s.kind, s.host, err)
	}
	list := make([]Model, 0, min(len(answer), maxModels))
	for _, m := range answer {
		if presentable(m.Name) && len(list) < maxModels {
			list = append(list, m)
		}
	}
	return list, nil
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
