package client

import (
	"context"
	"errors"
	"testing"

	"farhand/wire"
)

// Who gives up in the moment in which the reader has the answer in its hands
// still gets it: what the answer has opened would belong to nobody.
func TestAbandon(t *testing.T) {
	c := &connection{waiting: map[string]waiter{"1": {}}}
	p := &pending{conn: c, id: "1", answer: make(chan arrival, 1)}
	gaveUp := func() error { return context.Canceled }
	if _, err := p.abandon(gaveUp); !errors.Is(err, context.Canceled) || len(c.waiting) != 0 {
		t.Errorf("%v, %d wait", err, len(c.waiting))
	}
	p.answer <- arrival{Envelope: wire.Envelope{ID: "1"}}
	if env, err := p.abandon(gaveUp); err != nil || env.ID != "1" {
		t.Errorf("%+v, %v", env, err)
	}
}
