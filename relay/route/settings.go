package route

import (
	"context"
	"net/http"

	"farhand/relay/access"
	"farhand/wire"
)

// codeLoginRequired stands where a token isn't enough, as in the rest of the API.
const codeLoginRequired wire.Code = "LOGIN_REQUIRED"

// getSettings is GET /api/machines/{machine}/settings.
func (s *Server) getSettings(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	return s.settings(r.Context(), op, r.PathValue("machine"), wire.TSettingsGet, func(c wire.Caller) any { return wire.SettingsGet{Caller: c} })
}

// patchSettings is PATCH /api/machines/{machine}/settings.
func (s *Server) patchSettings(w http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	var change wire.SettingsChange
	if err := readBody(w, r, &change); err != nil {
		return nil, err
	}
	fields := change.Fields()
	answer, err := s.settings(r.Context(), op, r.PathValue("machine"), wire.TSettingsSet, func(c wire.Caller) any {
		return wire.SettingsSet{Caller: c, Change: change}
	})
	if err == nil { // the names alone: some values are secrets
		s.log.Info("settings changed", "owner", op.Owner, "holder", op.Holder, "machine", r.PathValue("machine"), "fields", fields)
	}
	return answer, err
}

// settings asks a device for its owner, and for nobody else.
func (s *Server) settings(ctx context.Context, op access.Operator, name string, t wire.Type, payload func(wire.Caller) any) (_ any, err error) {
	if !op.Login || !op.Manage {
		return nil, wire.Errorf(codeLoginRequired, "this needs the owner's own login, not a token")
	}
	m, _, err := s.target(ctx, op, name)
	if err != nil {
		return nil, err
	}
	if t == wire.TSettingsSet {
		ended, failed := s.does(op, string(t), m.key.id, "")
		if failed != nil {
			return nil, failed
		}
		defer func() { ended(err) }()
	}
	var body []byte
	body, err = m.call(ctx, t, payload(wire.Caller{Owner: op.Owner, Holder: op.Holder, OwnLogin: true}), s.timing.settings)
	if err != nil {
		return nil, err
	}
	var answer wire.Settings
	if err := wire.Decode(body, &answer); err != nil {
		return nil, badAnswer(wire.TSettings)
	}
	return answer, nil
}
