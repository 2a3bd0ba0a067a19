package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"farhand/internal/atomicfile"
)

// maxSpeeds bounds how many models' figures are kept.
const maxSpeeds = 64

// leastTokens is how long an answer must be to say anything about speed.
const leastTokens = 8

// speeds remembers how fast each model generated here, in tokens a second.
type speeds struct {
	file string // "": nowhere but here

	mu      sync.Mutex
	byModel map[string]float64
}

// open reads what an earlier run measured.
func (s *speeds) open(file string) error {
	s.file, s.byModel = file, make(map[string]float64)
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what was measured of models: %w", err)
	}
	var kept map[string]float64
	if err := json.Unmarshal(text, &kept); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for model, speed := range kept {
		if presentable(model) && speed > 0 && len(s.byModel) < maxSpeeds {
			s.byModel[model] = speed
		}
	}
	return nil
}

// of is what is known of a model; 0: nothing.
func (s *speeds) of(model string) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byModel[model]
}

// measured takes the figures of a whole answer. A board's speed doesn't change
// much, and its card lives longer without being told: the file is written only
// for news of a tenth.
func (s *speeds) measured(model string, last piece) error {
	speed := rate(last.completion, last.evalTime)
	if speed <= 0 || *last.completion < leastTokens {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.byModel[model]
	if before > 0 && speed > 0.9*before && speed < 1.1*before {
		return nil
	}
	if before == 0 && len(s.byModel) >= maxSpeeds {
		delete(s.byModel, slices.Sorted(maps.Keys(s.byModel))[0])
	}
	s.byModel[model] = speed
	if s.file == "" {
		return nil
	}
	text, err := json.Marshal(s.byModel)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.file, text, 0o600)
}
