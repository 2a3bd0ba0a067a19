package link

import (
	"bufio"
	"fmt"
	"net"
	"net/http"

	"github.com/gorilla/websocket"
)

// AcceptOptions say how a server takes an upgrade.
type AcceptOptions struct {
	Options
}

// Accept upgrades r. An Origin header that isn't the request's own host is
// refused with 403. On failure the answer has been written.
func Accept(w http.ResponseWriter, r *http.Request, o AcceptOptions) (*Conn, error) {
	o.Options = o.Options.withDefaults()
	up := websocket.Upgrader{WriteBufferSize: fragment, WriteBufferPool: o.Buffers}
	tapped := &tappedWriter{ResponseWriter: w}
	ws, err := up.Upgrade(tapped, r, nil)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	return newConn(ws, tapped.tap, o.Options), nil
}

// tappedWriter puts the tap under the hijacked connection.
type tappedWriter struct {
	http.ResponseWriter
	tap *tap
}

func (t *tappedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.tap = newTap(c)
	return t.tap, rw, nil
}
