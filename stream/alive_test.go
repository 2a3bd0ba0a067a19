package stream

import (
	"context"
	"testing"
	"time"
)

// Field case 58: what every stream needs is watched, too.
func TestHubIsAlive(t *testing.T) {
	h := NewHub(HubOptions{})
	defer h.Close()
	if err := h.Alive(t.Context()); err != nil {
		t.Error(err)
	}
	h.mu.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := h.Alive(ctx); err == nil {
		t.Error("alive with its lock held")
	}
	h.mu.Unlock()
}
