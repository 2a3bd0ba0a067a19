package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"farhand/wire"
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
	return c.order(ctx, showPairing, p.Clip())
}

// ShowStatus has the state of the machine shown.
func (c Client) ShowStatus(ctx context.Context, s Status) error {
	return c.order(ctx, showStatus, s.Clip())
}

// Paired says that the code was approved: nothing of it stays on the card.
func (c Client) Paired(ctx context.Context) error { return c.order(ctx, paired, nil) }

// Facts asks what the helper knows.
func (c Client) Facts(ctx context.Context) (Facts, error) {
	a, err := c.do(ctx, facts, nil)
	if err == nil && a.Facts == nil {
		err = errors.New("answer: no facts")
	}
	if err != nil {
		return Facts{}, err
	}
	return *a.Facts, nil
}

// Offline says that the relay can't be reached.
func (c Client) Offline(ctx context.Context, o Offline) error { return c.order(ctx, offline, o) }

// Online says that the relay is reached.
func (c Client) Online(ctx context.Context) error { return c.order(ctx, online, nil) }

// SetClockHint moves the clock forward to what a pinned host said. The error is
// Refused if it lies before the clock or further ahead than is believed.
func (c Client) SetClockHint(ctx context.Context, h ClockHint) error {
	return c.order(ctx, setClockHint, h)
}

// Settings asks for what can be changed later.
func (c Client) Settings(ctx context.Context) (wire.Settings, error) {
	return c.settings(ctx, settings, nil)
}

// ChangeSettings changes them. The error is Refused if something about the change
// is wrong; then nothing was changed.
func (c Client) ChangeSettings(ctx context.Context, change wire.SettingsChange) (wire.Settings, error) {
	return c.settings(ctx, changeSettings, change)
}

// KeepNetworks says that the relay was reached with the networks that were
// changed last. The error is Unavailable if they weren't put to use before that.
func (c Client) KeepNetworks(ctx context.Context, r Reached) error {
	return c.order(ctx, keepNetworks, r)
}

// InstallOllama has the local model's server be what an archive holds, and waits
// until it runs: minutes, so Timeout has to be as long. The archive is read from
// where it stands, through the same open file. Ending ctx gives it up.
func (c Client) InstallOllama(ctx context.Context, r InstallOllama, archive *os.File) error {
	_, err := c.with(ctx, installOllama, r, archive)
	return err
}

// RemoveOllama ends the local model's server and takes it away.
func (c Client) RemoveOllama(ctx context.Context, r RemoveOllama) error {
	return c.order(ctx, removeOllama, r)
}

func (c Client) settings(ctx context.Context, name string, args any) (wire.Settings, error) {
	a, err := c.do(ctx, name, args)
	if err == nil && a.Settings == nil {
		err = errors.New("answer: no settings")
	}
	if err != nil {
		return wire.Settings{}, err
	}
	return *a.Settings, nil
}

// order makes a request whose answer says nothing more.
func (c Client) order(ctx context.Context, name string, args any) error {
	_, err := c.do(ctx, name, args)
	return err
}

func (c Client) do(ctx context.Context, name string, args any) (answer, error) {
	return c.with(ctx, name, args, nil)
}

// with is do with an open file to be passed.
func (c Client) with(ctx context.Context, name string, args any, file *os.File) (answer, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a, err := c.exchange(ctx, name, args, file)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return answer{}, fmt.Errorf("provisioning request %s: %w", name, err)
	}
	return a, nil
}

func (c Client) exchange(ctx context.Context, name string, args any, file *os.File) (answer, error) {
	var a answer
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return a, fmt.Errorf("%w: %w", ErrNoHelper, err)
	}
	if err != nil {
		return a, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) // ends what is being waited for
	defer stop()

	line := call{Request: name}
	if args != nil {
		if line.Args, err = encode(args); err != nil {
			return a, err
		}
	}
	out := io.Writer(conn)
	if file != nil {
		out = passing{conn, file}
	}
	if err := writeLine(out, line); err != nil {
		return a, err
	}
	b, err := readLine(newLines(conn))
	if errors.Is(err, io.EOF) {
		return a, errors.New("the helper hung up without an answer")
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("answer: %w", err)
	}
	if !a.OK {
		return a, &Error{Code: a.Code, Message: a.Message}
	}
	return a, nil
}
