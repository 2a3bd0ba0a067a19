package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"farhand/device"
	"farhand/wire"
)

// session is one user of the device. It does the same thing again and again,
// and takes it as it comes that the device is out or in another's hand.
type session struct {
	b      *bench
	name   string
	device string

	done atomic.Int64 // rounds that succeeded
	last atomic.Value // the last error, as text

	mu      sync.Mutex
	refused map[wire.Code]int
}

// A session that was refused tries again after pause, one that got its turn
// after rest: so others get theirs.
const (
	pause = 20 * time.Millisecond
	rest  = 50 * time.Millisecond
)

// start runs a session until the test is over.
func (b *bench) start(name, device string, round func(context.Context, *session, int) error) *session {
	s := &session{b: b, name: name, device: device, refused: make(map[wire.Code]int)}
	s.last.Store("")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			b.gate.RLock()
			err := round(ctx, s, n)
			b.gate.RUnlock()
			wait := pause
			if err == nil {
				s.done.Add(1)
				wait = rest
			} else if s.last.Store(err.Error()); ctx.Err() == nil && !s.expected(err) {
				b.t.Errorf("session %s: %s: %v %v", name, wire.AsError(err).Code, err, wire.AsError(err).Details)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	})
	b.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// expected counts a refusal and says whether it is one that a device which
// others use, and which comes and goes, may answer with.
func (s *session) expected(err error) bool {
	code := wire.AsError(err).Code
	s.mu.Lock()
	s.refused[code]++
	s.mu.Unlock()
	switch code {
	case wire.HardwareBusy, wire.HardwareNotFound, wire.DeviceGone:
		return true
	case wire.HardwareOpenFailed:
		// The kernel shows a device a moment before it has a node and is
		// configured, and a moment longer; a port that is just being torn down
		// fails to open as a broken one would.
		return wire.AsError(err).Details["os_error"] == "EIO" || strings.Contains(err.Error(), "no configuration") || strings.Contains(err.Error(), "no device node")
	}
	return false
}

func (s *session) refusals() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, code := range slices.Sorted(maps.Keys(s.refused)) {
		all = append(all, fmt.Sprintf("%s %d", code, s.refused[code]))
	}
	return strings.Join(all, ", ")
}

// op runs an operation and decodes its result into result, unless that is nil.
func (s *session) op(ctx context.Context, op string, hold bool, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	c := device.Caller{Session: s.name, Holder: s.name, Owner: "soak", Name: s.name, Streams: true}
	answer, _, err := s.b.dispatch.Do(ctx, c, wire.HardwareOp{Device: s.device, Op: op, Args: raw, Hold: hold})
	if err != nil || result == nil {
		return err
	}
	if raw, err = json.Marshal(answer.Result); err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// release gives the device back, whatever became of what was done with it.
func (s *session) release(ctx context.Context) error {
	err := s.op(ctx, wire.OpRelease, false, struct{}{}, nil)
	if errors.Is(err, wire.HardwareNotFound) { // pulled out: that released it
		return nil
	}
	return err
}

var seconds = 10.0

// say sends a word through the serial port and waits for its echo.
func say(ctx context.Context, s *session, word string, hold bool) error {
	var got wire.SerialData
	err := s.op(ctx, wire.OpSerialTransact, hold, wire.SerialTransact{
		Data: []byte(word), Expect: wire.SerialPatterns{{Text: word}}, TimeoutSeconds: &seconds,
	}, &got)
	if err == nil && got.Match == nil {
		return fmt.Errorf("%q has no echo: %+v", word, got)
	}
	return err
}

// talk uses the port for one operation at a time.
func talk(ctx context.Context, s *session, n int) error {
	return say(ctx, s, fmt.Sprintf("talk%d;", n), false)
}

// keep holds the port, watches it, talks and gives it back.
func keep(ctx context.Context, s *session, n int) error {
	err := say(ctx, s, fmt.Sprintf("keep%d;", n), true)
	if err == nil && n%2 == 0 {
		err = s.op(ctx, wire.OpSerialWatch, false, wire.SerialWatch{}, nil)
	}
	if err == nil {
		err = say(ctx, s, fmt.Sprintf("watched%d;", n), false)
	}
	return errors.Join(err, s.release(ctx))
}

// loopback is the number of the gadget's interface that sends back what it
// gets: those of the serial port are 0 and 1.
var loopback = wire.USBNumber(2)

// bulk holds the device, sends a packet and receives it.
func bulk(ctx context.Context, s *session, n int) error {
	packet := bytes.Repeat([]byte{byte(n)}, 200)
	err := s.op(ctx, wire.OpUSBSend, true, wire.USBSend{Interface: &loopback, Data: packet, TimeoutSeconds: &seconds}, nil)
	var got wire.USBTransferred
	if err == nil {
		err = s.op(ctx, wire.OpUSBReceive, true, wire.USBReceive{Interface: &loopback, Size: 512, TimeoutSeconds: &seconds}, &got)
	}
	if err == nil && !bytes.Equal(got.Data, packet) {
		err = fmt.Errorf("the packet came back as %d bytes: timed out: %v", len(got.Data), got.TimedOut)
	}
	return errors.Join(err, s.release(ctx))
}

// lookAndBulk asks the device for its strings, then does the same.
func lookAndBulk(ctx context.Context, s *session, n int) error {
	var d wire.USBDescription
	if err := s.op(ctx, wire.OpUSBDescribe, false, wire.USBDescribe{Strings: true}, &d); err != nil {
		return err
	}
	if d.SerialNumber.Value != "SOAK" && d.SerialNumber.State != wire.USBStringUnreadable {
		return fmt.Errorf("the device has the serial number %+v", d.SerialNumber)
	}
	return bulk(ctx, s, n)
}
