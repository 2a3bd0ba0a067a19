package request

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"farhand/wire"
)

// Handler does what is asked. Its methods may be called at the same time by
// several connections; the arguments are within their bounds. An error that is a
// Code or wraps one is told with it, any other as Failed.
type Handler interface {
	ShowPairing(context.Context, Pairing) error
	ShowStatus(context.Context, Status) error
	Paired(context.Context) error
	Facts(context.Context) (Facts, error)
	Offline(context.Context, Offline) error
	Online(context.Context) error
	SetClockHint(context.Context, ClockHint) error
	// Settings are those that can be changed, and ChangeSettings changes them.
	Settings(context.Context) (wire.Settings, error)
	ChangeSettings(context.Context, wire.SettingsChange) (wire.Settings, error)
	// KeepNetworks says that the relay was reached with the networks that were
	// changed last. It is Unavailable if they weren't put to use before.
	KeepNetworks(context.Context, Reached) error
}

// OllamaKeeper is what a Handler may be besides: one that looks after the local
// model's server.
type OllamaKeeper interface {
	// InstallOllama reads the archive from where it stands, so that whoever shares
	// the descriptor sees how far it is. It ends with ctx before anything is
	// changed, and not in the middle of it. Refused is an archive that is wrong,
	// NoRoom one that is too large for the disk, Unavailable that another one is
	// being installed or that nothing can be kept.
	InstallOllama(ctx context.Context, r InstallOllama, archive *os.File) error
	RemoveOllama(context.Context, RemoveOllama) error
}

// Serve answers the requests of one connection until it ends, nothing came for
// idle, a line was no request, or ctx ended, and closes it. The error is nil if
// the other side hung up between two requests or was silent for idle.
func Serve(ctx context.Context, conn net.Conn, h Handler, idle time.Duration) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	from := &receiver{conn: conn}
	defer from.close()
	lines := newLines(from)
	for {
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		if ctx.Err() != nil { // the deadline of the end may just have been overwritten
			return context.Cause(ctx)
		}
		line, err := readLine(lines)
		if errors.Is(err, errTooLong) {
			err = errorf(Malformed, "%v", err)
			return errors.Join(err, writeLine(conn, failure(err)))
		}
		if err != nil {
			return ended(ctx, err)
		}
		a := from.answer(ctx, h, bytes.Clone(line), lines)
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil { // the work may have taken long
			return err
		}
		if _, err := conn.Write(append(a, '\n')); err != nil {
			return err
		}
	}
}

// answer does what a line asks for. A request with a file is one that takes long,
// so it is given up when the other side hangs up.
func (r *receiver) answer(ctx context.Context, h Handler, line []byte, lines *bufio.Reader) []byte {
	file := r.take()
	if file == nil {
		return Answer(ctx, h, line)
	}
	defer file.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_ = r.conn.SetReadDeadline(time.Time{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		if _, err := lines.Peek(1); err != nil && !isTimeout(err) {
			cancel(errHungUp)
		}
	}()
	a := answerWith(ctx, h, line, file)
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	<-watching
	return a
}

var errHungUp = errors.New("who asked hung up")

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// ended is nil for the ends of a connection that nobody needs to hear of.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) || isTimeout(err) {
		return nil
	}
	return err
}

// Refuse tells a caller that it may not call, and hangs up.
func Refuse(conn net.Conn, why string) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	return writeLine(conn, failure(errorf(NotAllowed, "%s", why)))
}
