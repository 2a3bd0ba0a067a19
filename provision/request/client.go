package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"
)

// ErrNoHelper says that nobody listens: this machine is no appliance.
var ErrNoHelper = errors.New("no provisioning helper on this machine")

// Client calls the helper. Each call is a connection of its own, so a helper
// that was restarted, or that left because it was idle, is no failure. It is
// safe for concurrent use.
type Client struct {
	Path string // of the socket
	// Timeout bounds a call, in case the context doesn't; 0 is ten seconds.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// ShowPairing has a code and its QR shown until Paired or the next ShowStatus.
func (c Client) ShowPairing(ctx context.Context, p Pairing) error {
	return c.do(ctx, showPairing, p.Clip(), nil)
}

// ShowStatus has the state of the machine shown.
func (c Client) ShowStatus(ctx context.Context, s Status) error {
	return c.do(ctx, showStatus, s.Clip(), nil)
}

// Paired says that the code was approved: nothing of it stays on the card.
func (c Client) Paired(ctx context.Context) error { return c.do(ctx, paired, nil, nil) }

// Facts asks what the helper knows.
func (c Client) Facts(ctx context.Context) (Facts, error) {
	var f Facts
	err := c.do(ctx, facts, nil, &f)
	return f, err
}

// Offline says that the relay can't be reached.
func (c Client) Offline(ctx context.Context, o Offline) error { return c.do(ctx, offline, o, nil) }

// Online says that the relay is reached.
func (c Client) Online(ctx context.Context) error { return c.do(ctx, online, nil, nil) }

// SetClockHint moves the clock forward to what a pinned host said. The error is
// Refused if it lies before the clock or further ahead than is believed.
func (c Client) SetClockHint(ctx context.Context, h ClockHint) error {
	return c.do(ctx, setClockHint, h, nil)
}

func (c Client) do(ctx context.Context, name string, args any, into *Facts) error {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.exchange(ctx, name, args, into); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return fmt.Errorf("provisioning request %s: %w", name, err)
	}
	return nil
}

func (c Client) exchange(ctx context.Context, name string, args any, into *Facts) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", ErrNoHelper, err)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) // ends what is being waited for
	defer stop()

	line := call{Request: name}
	if args != nil {
		if line.Args, err = encode(args); err != nil {
			return err
		}
	}
	if err := writeLine(conn, line); err != nil {
		return err
	}
	b, err := readLine(newLines(conn))
	if errors.Is(err, io.EOF) {
		return errors.New("the helper hung up without an answer")
	}
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if !a.OK {
		return &Error{Code: a.Code, Message: a.Message}
	}
	if into != nil {
		if a.Facts == nil {
			return errors.New("answer: no facts")
		}
		*into = *a.Facts
	}
	return nil
}
