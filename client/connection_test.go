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
	answer := make(chan wire.Envelope, 1)
	gaveUp := func() error { return context.Canceled }
	if _, err := c.abandon("1", answer, gaveUp); !errors.Is(err, context.Canceled) || len(c.waiting) != 0 {
		t.Errorf("%v, %d wait", err, len(c.waiting))
	}
	answer <- wire.Envelope{ID: "1"}
	if env, err := c.abandon("1", answer, gaveUp); err != nil || env.ID != "1" {
		t.Errorf("%+v, %v", env, err)
	}
}
