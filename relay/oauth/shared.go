package oauth

import (
	"encoding/json"

	"farhand/relay/store"
)

// follow does to the live sockets here what another instance decided: it ended a
// token family, a login or token or a machine, or changed an approval. What this
// instance decided itself comes here once more and finds nothing to do.
func (s *Server) follow(ev store.Event) {
	parts := store.Split(ev.Key)
	if len(parts) != 4 {
		return
	}
	owner, kind, id := parts[1], parts[2], parts[3]
	switch kind {
	case "family":
		var f family
		if ev.Deleted || json.Unmarshal(ev.Value, &f) == nil && f.Revoked != nil {
			s.sockets().RevokeFamily(owner, id)
		}
	case kindLogin, kindToken:
		if ev.Deleted {
			s.sockets().RevokeHolder(owner, holder(kind, id))
		}
	case "machine":
		var m machine
		switch {
		case ev.Deleted:
			s.sockets().RevokeMachine(owner, id)
		case json.Unmarshal(ev.Value, &m) == nil:
			s.sockets().Approved(owner, id, m.Approval)
		}
	}
}
