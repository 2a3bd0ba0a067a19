package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Monitor speaks QMP, QEMU's control protocol (its docs/interop/qmp-spec): one
// JSON object a line. It is safe for concurrent use; commands run one at a time.
type Monitor struct {
	conn    net.Conn
	in      *json.Decoder
	events  func(Event)
	turn    chan struct{} // holds a token while no command runs
	answers chan message
	reading sync.WaitGroup
	ended   chan struct{}
	err     error // valid after ended
}

// Event is what QEMU tells without having been asked, as its
// docs/interop/qemu-qmp-ref lists them: "SHUTDOWN", "DEVICE_DELETED".
type Event struct {
	Name string
	Data json.RawMessage
}

// message is any line of QMP: an answer has Return or Error, an event has Event.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// commandTime bounds a command whose caller has no deadline.
const commandTime = 20 * time.Second

// NewMonitor greets QEMU on conn, which is the Monitor's from then on. Events go
// to events, one after the other, on a goroutine that Close waits for; it may be
// nil, and must not call the Monitor.
func NewMonitor(conn net.Conn, events func(Event)) (*Monitor, error) {
	if events == nil {
		events = func(Event) {}
	}
	m := &Monitor{
		conn: conn, in: json.NewDecoder(conn), events: events,
		turn: make(chan struct{}, 1), answers: make(chan message), ended: make(chan struct{}),
	}
	m.turn <- struct{}{}
	if err := conn.SetDeadline(time.Now().Add(commandTime)); err != nil {
		return nil, err
	}
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	if err := m.in.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	if greeting.QMP == nil {
		return nil, errors.New("what answers is not QEMU's monitor")
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	m.reading.Go(m.read)
	if err := m.Do(context.Background(), "qmp_capabilities", nil, nil); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Monitor) read() {
	defer close(m.ended)
	for {
		var line message
		if err := m.in.Decode(&line); err != nil {
			m.err = fmt.Errorf("QEMU's monitor: %w", err)
			return
		}
		if line.Event != "" {
			m.events(Event{Name: line.Event, Data: line.Data})
			continue
		}
		m.answers <- line // Do waits for it, and Close takes what nobody waits for
	}
}

// Do executes one command; args is what becomes its arguments, or nil. The
// answer is decoded into result, unless that is nil. A command that was not
// answered in time leaves the Monitor unusable: what comes later would be taken
// for another's answer.
func (m *Monitor) Do(ctx context.Context, command string, args, result any) error {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	select {
	case <-m.turn:
		defer func() { m.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("QEMU's %s: %w", command, context.Cause(ctx))
	}
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return err
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(commandTime)); err != nil {
		return err
	}
	if _, err := m.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("QEMU's monitor: %w", err)
	}
	select {
	case a := <-m.answers:
		switch {
		case a.Error != nil:
			return fmt.Errorf("QEMU refuses %s: %s", command, a.Error.Desc)
		case result != nil:
			if err := json.Unmarshal(a.Return, result); err != nil {
				return fmt.Errorf("QEMU's answer to %s: %w", command, err)
			}
		}
		return nil
	case <-m.ended:
		return m.err
	case <-ctx.Done():
		m.conn.Close()
		return fmt.Errorf("QEMU's %s: %w", command, context.Cause(ctx))
	}
}

// Close ends the connection. It may be called again.
func (m *Monitor) Close() {
	m.conn.Close()
	for {
		select {
		case <-m.answers:
		case <-m.ended:
			m.reading.Wait()
			return
		}
	}
}
