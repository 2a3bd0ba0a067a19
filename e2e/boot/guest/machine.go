package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"farhand/e2e/boot/card"
	"farhand/e2e/boot/firmware"
	"farhand/internal/qemu"
)

// Machine is a board that is on, or was until just now.
type Machine struct {
	Boot    firmware.Boot // what it was started with
	Card    *card.Inserted
	Console *Text // what the serial console on the header prints

	header  string
	process *qemu.Process
	dir     string
	copying sync.WaitGroup

	mu       sync.Mutex
	reason   string // why it stopped, as QEMU says it
	watchdog bool
	gone     bool
}

// sink is where the console goes.
func (m *Machine) sink(also io.Writer) io.Writer {
	if also == nil {
		return m.Console
	}
	return io.MultiWriter(m.Console, also)
}

// event is told what QEMU tells.
func (m *Machine) event(e qemu.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Name {
	case "SHUTDOWN":
		var data struct{ Reason string }
		if json.Unmarshal(e.Data, &data) == nil && m.reason == "" {
			m.reason = data.Reason
		}
	case "WATCHDOG":
		m.watchdog = true
	}
}

// End is how a machine went off by itself.
type End struct {
	Reason   string // "guest-shutdown", "guest-reset", "guest-panic"
	Watchdog bool   // the hardware watchdog fired
}

// Restarts says whether the guest, or its watchdog, wanted to start again.
func (e End) Restarts() bool { return e.Reason == "guest-reset" || e.Watchdog }

// Wait waits until the machine goes off by itself, and gives the card what the
// guest wrote.
func (m *Machine) Wait(ctx context.Context) (End, error) {
	select {
	case <-m.process.Done():
	case <-ctx.Done():
		return End{}, fmt.Errorf("the machine didn't go off: %w; its console ended with\n%s", context.Cause(ctx), m.Console.Tail())
	}
	err := m.process.Wait()
	m.mu.Lock()
	end := End{m.reason, m.watchdog}
	m.mu.Unlock()
	return end, errors.Join(err, m.Eject(card.Everything))
}

// Await waits until the console prints what the pattern matches, after mark (0:
// since the power came), and returns the groups of the match. A machine that goes
// off ends it.
func (m *Machine) Await(ctx context.Context, mark int, pattern string) ([]string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-m.process.Done():
			cancel(fmt.Errorf("the machine went off (%s)", m.Fate()))
		case <-ctx.Done():
		}
	})
	groups, err := m.Console.Await(ctx, mark, re)
	cancel(nil)
	watching.Wait()
	return groups, err
}

// Running says whether the machine is still on.
func (m *Machine) Running() bool {
	select {
	case <-m.process.Done():
		return false
	default:
		return true
	}
}

// Fate says why a machine that is off went off.
func (m *Machine) Fate() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.watchdog:
		return "its watchdog reset it"
	case m.reason != "":
		return m.reason
	}
	select {
	case <-m.process.Done():
		return fmt.Sprintf("QEMU ended: %v", m.process.Wait())
	default:
		return "it runs"
	}
}

// Cut takes the power away. The card is in the machine until Eject.
func (m *Machine) Cut() { m.process.Kill() }

// Eject takes the card out of a machine that is off.
func (m *Machine) Eject(choose card.Choice) error {
	m.process.Close()
	m.copying.Wait()
	m.mu.Lock()
	gone := m.gone
	m.gone = true
	m.mu.Unlock()
	if gone {
		return nil
	}
	return errors.Join(m.Card.Eject(choose), os.RemoveAll(m.dir))
}

// Conn is our end of one of the board's Sockets.
func (m *Machine) Conn(name string) net.Conn { return m.process.Conn(name) }

// Type sends keystrokes to the serial console.
func (m *Machine) Type(text string) error {
	_, err := io.WriteString(m.process.Conn(m.header), text)
	return err
}

// Do executes a command of QEMU's.
func (m *Machine) Do(ctx context.Context, command string, args, result any) error {
	return m.process.Monitor.Do(ctx, command, args, result)
}

// Screen takes a picture of what the display shows, as a PNG.
func (m *Machine) Screen(ctx context.Context) ([]byte, error) {
	file := filepath.Join(m.dir, "screen.png")
	if err := m.Do(ctx, "screendump", map[string]any{"filename": file, "format": "png"}, nil); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// Plug adds a device while the machine is on.
func (m *Machine) Plug(ctx context.Context, args map[string]any) error {
	return m.Do(ctx, "device_add", args, nil)
}

// Unplug takes it away again.
func (m *Machine) Unplug(ctx context.Context, id string) error {
	return m.Do(ctx, "device_del", map[string]any{"id": id}, nil)
}

// Pause stops the machine's clock; Resume lets it go on.
func (m *Machine) Pause(ctx context.Context) error { return m.Do(ctx, "stop", nil, nil) }

// Resume lets a paused machine go on.
func (m *Machine) Resume(ctx context.Context) error { return m.Do(ctx, "cont", nil, nil) }
