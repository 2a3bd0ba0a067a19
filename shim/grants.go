package shim

import (
	"context"
	"time"

	"farhand/audit"
	"farhand/grant"
	"farhand/link"
	"farhand/wire"
)

// grantsWait bounds how long the ACK of GRANTS_UPDATE waits for calls that the
// new grants end; our relay gives the whole exchange 10 s.
const grantsWait = 3 * time.Second

// updateGrants takes over a GRANTS_UPDATE. It isn't subject to admission: less
// must be allowed even when the socket is full. The new policy holds for every
// later frame before this returns, calls that it no longer allows are cancelled,
// and ACK goes out when they have ended.
func (k *socket) updateGrants(e wire.Envelope) error {
	if err := k.permit(e.Type, k.policy.Load()); err != nil {
		return k.refuse(e, err)
	}
	// Without grants it must not be taken for one that lifts every ceiling.
	var update struct {
		Grants *wire.GrantSet `json:"grants"`
	}
	if err := wire.Decode(e.Payload, &update); err != nil {
		return k.refuse(e, err)
	}
	if update.Grants == nil {
		return k.refuse(e, wire.Errorf(wire.InternalError, "invalid payload: grants is missing").With("reason", "invalid_payload"))
	}
	policy := k.shim.cfg.policy(*update.Grants)
	k.setPolicy(policy)
	ended := k.cancelRefused(policy)
	k.begin(func() {
		if k.session != nil {
			k.session.policyChanged(policy)
		}
		awaitCalls(k.ctx, ended, grantsWait)
		err := k.shim.record(k.ctx, audit.Entry{
			SessionID: k.sessionID(), RequestID: e.ID, Op: audit.OpGrantsChanged,
			Details: []audit.Field{audit.Int("cancelled", len(ended))}, Result: audit.Result{OK: true},
		})
		m := wire.Message{Type: wire.TAck, ID: e.ID, Version: k.version, Payload: wire.Ack{OK: true}}
		if err != nil {
			m.Type, m.Payload = wire.TError, wire.AsError(err)
		}
		_ = k.conn.SendStamped(k.ctx, link.Answers, m, k.stamp) // fails only if the socket does
	})
	return nil
}

// cancelRefused cancels the calls that the policy no longer allows.
func (k *socket) cancelRefused(policy *grant.Policy) []*Call {
	k.mu.Lock()
	checks := make(map[*Call]func(*grant.Policy) error, len(k.calls))
	for _, c := range k.calls {
		checks[c] = c.recheck
	}
	k.mu.Unlock()
	var ended []*Call
	for c, check := range checks {
		if err := check(policy); err != nil {
			c.cancel(err)
			ended = append(ended, c)
		}
	}
	return ended
}

func awaitCalls(ctx context.Context, calls []*Call, wait time.Duration) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for _, c := range calls {
		select {
		case <-c.done:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (k *socket) sessionID() string {
	if k.session == nil {
		return ""
	}
	return k.session.ID()
}
