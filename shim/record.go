package shim

import (
	"context"

	"farhand/audit"
	"farhand/wire"
)

// record leaves a durable record before a control operation is answered. Its
// error is the operation's: what can't be recorded isn't done.
func (s *Shim) record(ctx context.Context, e audit.Entry) error {
	if err := s.cfg.Audit.AppendSync(ctx, e); err != nil {
		s.log.Error("audit record failed", "op", e.Op, "err", err)
		return wire.Errorf(wire.InternalError, "the audit log can't be written").With("reason", "audit_unavailable")
	}
	return nil
}

// note leaves a record of what has happened and can't be refused any more.
func (s *Shim) note(e audit.Entry) {
	if err := s.cfg.Audit.Append(e); err != nil {
		s.log.Error("audit record failed", "op", e.Op, "err", err)
	}
}

// recordRevoked notes that the platform ended a socket for good.
func (s *Shim) recordRevoked(session *Session, reason, source string, code int, successor *string) {
	e := audit.Entry{Op: audit.OpSessionRevoked, Result: audit.Result{OK: true}, Details: []audit.Field{
		audit.String("reason", clip(reason)), audit.String("source", source),
	}}
	if session != nil {
		e.SessionID = session.ID()
	}
	if code != 0 {
		e.Details = append(e.Details, audit.Int("close_code", code))
	}
	if successor != nil {
		e.Details = append(e.Details, audit.String("new_shim_machine_id", clip(*successor)))
	}
	s.note(e)
}
