package route

import (
	"testing"

	"farhand/wire"
)

// The handle family passes by the method table alone, each class of devices by
// its own capability, and what comes in an ACK comes through.
func TestHandlesPass(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.HardwareGPIO)
	r.onData = func(p *peer, env wire.Envelope) {
		if env.Type == wire.TGPIOConfigure {
			p.send(wire.Message{Type: wire.TAck, ID: env.ID, Payload: wire.Ack{OK: true, Handle: "gpio_1"}})
			return
		}
		echo(p, env)
	}
	op.request(id, "open", wire.TGPIOConfigure, wire.GPIOHandleConfigure{Chip: "/dev/gpiochip0", Line: 17})
	var ack wire.Ack
	if env := op.want(wire.TAck); env.ID != "open" || wire.Decode(env.Payload, &ack) != nil || ack.Handle != "gpio_1" {
		t.Errorf("GPIO_CONFIGURE is answered with %s", env.Payload)
	}
	op.request(id, "read", wire.TGPIORead, wire.Handle{Handle: "gpio_1"})
	op.want(wire.TGPIOReadResponse)
	op.request(id, "other", wire.TSerialOpen, wire.SerialOpen{Port: "/dev/ttyUSB0"})
	if e := op.wantError("other"); e.Code != wire.CapabilityNotGranted || e.Details["required_capability"] != string(wire.HardwareSerial) {
		t.Errorf("SERIAL_OPEN is answered with %+v", e)
	}
}
