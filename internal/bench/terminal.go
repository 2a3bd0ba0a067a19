package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"farhand/wire"
)

// benchTerminal measures a key on its way to a terminal and what it shows on its
// way back, beside a bare server that does no more than that. How it compares with
// a frame that comes back without any terminal is shown, too: most of that is the
// kernel's, which hands each key on to a worker twice.
func benchTerminal(ctx context.Context, bin, dir string) ([]bar, error) {
	d, err := newDaemonBench(bin, dir, "", wire.Shell, wire.Terminal, wire.Streams)
	if err != nil {
		return nil, err
	}
	defer d.server.Close()
	return d.withPeer(ctx, func(_ *program, data, bare *socket) ([]bar, error) {
		t := terminal{socket: data}
		if err := t.open(); err != nil {
			return nil, err
		}
		peer := func(kind wire.Type) call {
			frame := bareFrame(kind)
			return func() error { _, err := bare.roundTrip(frame()); return err }
		}
		if _, _, _, err := compare(ctx, "warm-up", 1, roundCalls, t.key, peer(keyFrame)); err != nil {
			return nil, err
		}
		if _, _, _, err := compare(ctx, "no terminal", 9, roundCalls, t.key, peer(echoFrame)); err != nil {
			return nil, err
		}
		ratio, _, _, err := compare(ctx, "keystroke_echo", 25, roundCalls, t.key, peer(keyFrame))
		return []bar{{name: "keystroke_echo", value: ratio, limit: 2}}, err
	})
}

// terminal is one on which cat runs: what echoes is the terminal itself.
type terminal struct {
	socket *socket
	id     string
	typed  int64
}

func (t *terminal) open() error {
	var opened wire.TerminalOpened
	if err := exchange(t.socket, wire.TTerminalOpen, wire.TerminalOpen{Argv: []string{"cat"}, Credit: wire.MaxTerminalRoom}, &opened); err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	t.id = opened.Terminal
	return nil
}

// key types one and waits for what it shows, and for the answer, whichever comes
// first.
func (t *terminal) key() error {
	frame := request(wire.TTerminalInput, wire.TerminalInput{Terminal: t.id, Writer: "bench", Offset: t.typed, Data: keyOf(int(t.typed))})()
	t.typed++
	b, err := t.socket.roundTrip(frame)
	for shown, answered := false, false; err == nil; b, err = t.socket.read() {
		head := b[:min(len(b), 200)]
		switch {
		case bytes.Contains(head, []byte(`"type":"STREAM_DATA"`)):
			shown = true
		case bytes.Contains(head, []byte(`"type":"TERMINAL_INPUT_RESPONSE"`)):
			answered = true
		case !bytes.Contains(head, []byte(`"type":"STATUS"`)):
			return fmt.Errorf("got %s", head)
		}
		if shown && answered {
			return nil
		}
	}
	return errors.Join(errors.New("no echo"), err)
}
