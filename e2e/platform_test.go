package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"farhand/shim/shimtest"
	"farhand/wire"
)

// peer is the platform's end of a daemon's connections: what the platform does
// to open sessions and to use them.
type peer struct {
	t       *testing.T
	b       *bench
	cloud   *cloud
	control *shimtest.Socket
	data    []*shimtest.Socket
}

// on takes the daemon's control connection.
func (b *bench) on(c *cloud) *peer {
	b.t.Helper()
	return &peer{t: b.t, b: b, cloud: c, control: c.Next()}
}

func (p *peer) sockets() []*shimtest.Socket { return append([]*shimtest.Socket{p.control}, p.data...) }

// browse walks to a directory and is the browse and the reference.
func (p *peer) browse(path string) (string, string) {
	p.t.Helper()
	list := answer[wire.DirectoryListResponse](p.t, p.control.Call(wire.TDirectoryListRequest, nil), wire.TDirectoryListResponse)
	for {
		i := slices.IndexFunc(list.Entries, func(e wire.DirectoryEntry) bool {
			return path == e.Path || strings.HasPrefix(path, e.Path+"/")
		})
		if i < 0 {
			p.t.Fatalf("there is no way to %s from %v", path, list.Entries)
		}
		e := list.Entries[i]
		if e.Path == path {
			return list.BrowseID, e.DirectoryRef
		}
		list = answer[wire.DirectoryListResponse](p.t, p.control.Call(wire.TDirectoryListRequest,
			map[string]any{"browse_id": list.BrowseID, "directory_ref": e.DirectoryRef}), wire.TDirectoryListResponse)
	}
}

// attach binds a session to the root.
func (p *peer) attach(session string) wire.SessionBinding {
	p.t.Helper()
	browse, ref := p.browse(p.b.root())
	return answer[wire.SessionBinding](p.t, p.control.Call(wire.TAttachSession,
		map[string]any{"session_id": session, "browse_id": browse, "directory_ref": ref, "expected_connection_id": "x"}), wire.TSessionAttached)
}

// open brings a session up and is its socket.
func (p *peer) open(session string) (*shimtest.Socket, wire.SessionBinding) {
	p.t.Helper()
	b := p.attach(session)
	got := answer[wire.SessionBinding](p.t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": session, "revision": b.Revision}), wire.TSessionActivated)
	if got.RootGrant = b.RootGrant; got != b {
		p.t.Fatalf("activated %+v, attached %+v", got, b)
	}
	return p.up(b), b
}

// up is the socket of a session that was just activated or restored.
func (p *peer) up(b wire.SessionBinding) *shimtest.Socket {
	p.t.Helper()
	s := p.cloud.Next()
	if s.Session != b.SessionID || *s.Hello.AllowedRoot != b.AllowedRoot || s.Hello.MachineID != p.control.Hello.MachineID {
		p.t.Fatalf("the socket of %q with root %q came, not that of %+v", s.Session, *s.Hello.AllowedRoot, b)
	}
	p.data = append(p.data, s)
	return s
}

// answer decodes an answer that has to be of a type.
func answer[T any](t *testing.T, e wire.Envelope, want wire.Type) T {
	t.Helper()
	var v T
	if e.Type != want {
		t.Fatalf("%s %s instead of %s", e.Type, e.Payload, want)
	}
	if err := json.Unmarshal(e.Payload, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
