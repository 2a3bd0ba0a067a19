package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// DialOptions say how to reach the platform side.
type DialOptions struct {
	Options
	// Token goes into Authorization: Bearer; empty leaves the header out.
	Token string
	TLS   *tls.Config
	// NetDial replaces the TCP dialler, below TLS.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Device says that this end is a device: every frame is checked against
	// what SetGranted was given last (nothing, before the first time).
	Device bool
	// UserAgent is the header of that name.
	UserAgent string
	// Timeout bounds connecting and the upgrade: 30 s by default.
	Timeout time.Duration
}

const defaultDialTimeout = 30 * time.Second

// Dial connects to url (ws or wss). A *DialError is an HTTP answer that refused
// the upgrade; any other error means that there was none. Redirects are not
// followed: the token is for the host that was asked.
func Dial(ctx context.Context, url string, o DialOptions) (*Conn, error) {
	o.Options = o.Options.withDefaults()
	if o.Timeout <= 0 {
		o.Timeout = defaultDialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	var under *tap
	release := func() bool { return true }
	netDial := o.NetDial
	if netDial == nil {
		netDial = newDialer().DialContext
	}
	dialer := websocket.Dialer{
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := netDial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			under = newTap(c)
			under.room.Store(maxUpgrade)
			// The upgrade itself only looks at the deadline.
			release = context.AfterFunc(ctx, func() { c.Close() })
			return under, nil
		},
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: o.TLS,
		WriteBufferSize: fragment,
		WriteBufferPool: o.Buffers,
	}
	header := http.Header{}
	if o.Token != "" {
		header.Set("Authorization", "Bearer "+o.Token)
	}
	if o.UserAgent != "" {
		header.Set("User-Agent", o.UserAgent)
	}
	ws, resp, err := dialer.DialContext(ctx, url, header)
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
			return nil, &DialError{Status: resp.StatusCode, Body: string(body)}
		}
		return nil, fmt.Errorf("dial: %w", err)
	}
	under.room.Store(math.MaxInt64)
	ws.EnableWriteCompression(false) // even if the server offered it unasked
	c := newConn(ws, under, o.Options)
	if o.Device {
		c.granted.Store(new(wire.Capabilities))
	}
	return c, nil
}
