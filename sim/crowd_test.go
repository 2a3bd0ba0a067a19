package sim_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/sim"
	"farhand/stream"
	"farhand/wire"
)

// crowdOps are what is done to a device of each type.
var crowdOps = map[string][][2]string{
	device.Serial: {
		{wire.OpSerialWrite, `{"data":"aGVsbG8K","timeout_seconds":0.05}`},
		{wire.OpSerialRead, `{"timeout_seconds":0.001}`},
		{wire.OpSerialTransact, `{"data":"Kg==","flush":true,"timeout_seconds":0.002}`},
		{wire.OpSerialExpect, `{"steps":[{"send_text":"x","expect":[{"regexp":"x+"}],"timeout_seconds":0.005}]}`},
		{wire.OpSerialControl, `{"mode":{"baudrate":9600}}`},
		{wire.OpSerialWatch, `{}`},
	},
	device.USB: {
		{wire.OpUSBDescribe, `{"strings":true}`},
		{wire.OpUSBSend, `{"endpoint":1,"data":"aGVsbG8=","timeout_seconds":0.01}`},
		{wire.OpUSBReceive, `{"endpoint":129,"timeout_seconds":0.005}`},
		{wire.OpUSBWatch, `{"endpoint":129}`},
		{wire.OpUSBControl, `{"request_type":128,"request":6,"value":256,"length":18,"timeout_seconds":0.05}`},
		{wire.OpUSBReset, `{}`},
		{wire.OpUSBConfigure, `{"configuration":1}`},
	},
	device.I2C: {
		{wire.OpI2CTransfer, `{"address":"0x76","write":[208],"read":1}`},
		{wire.OpI2CTransfer, `{"address":"0x50","write":[0,0],"read":16}`},
		{wire.OpI2CSMBus, `{"address":"0x0b","protocol":"read_word_data","command":9}`},
		{wire.OpI2CScan, `{}`},
	},
	device.SPI: {{wire.OpSPITransfer, `{"write":[159,0,0,0],"full_duplex":true}`}, {wire.OpSPITransfer, `{"read":8}`}},
	device.GPIO: {
		{wire.OpGPIOSet, `{"line":5,"value":1}`}, {wire.OpGPIOSet, `{"line":6,"value":1,"on_release":0}`},
		{wire.OpGPIOGet, `{"lines":[5,6,7]}`}, {wire.OpGPIOWatch, `{"line":7}`}, {wire.OpGPIOPWM, `{"line":6,"frequency_hz":1000,"duty":0.5}`},
		{wire.OpGPIOConfigure, `{"line":5,"direction":"in","pull":"up"}`},
	},
	device.Printer: {
		{wire.OpPrinterStatus, `{}`}, {wire.OpPrinterFiles, `{}`}, {wire.OpPrinterTemperature, `{"targets":{"bed":50}}`},
		{wire.OpPrinterWatch, `{}`}, {wire.OpPrinterCommand, `{"gcode":["M104 S100"]}`}, {wire.OpPrinterCommand, `{"data":"Gw=="}`},
	},
}

// TestCrowd is four sessions that use every device of the bench at once while they
// are unplugged and plugged in, until the leases and the streams are closed under
// them: nothing panics, hangs or is left, and every failure is a device's own.
func TestCrowd(t *testing.T) {
	leak.Check(t)
	b, err := sim.Open(sim.Options{Dir: filepath.Join(t.TempDir(), "sim")})
	if err != nil {
		t.Fatal(err)
	}
	reg := device.NewRegistry(device.Options{Families: b.Families()})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	hub := stream.NewHub(stream.HubOptions{})
	leases := device.NewLeases(device.LeaseOptions{Idle: 20 * time.Millisecond, Linger: 5 * time.Millisecond})
	disp := device.NewDispatcher(reg, leases, hub)
	devices := reg.List()
	var stopping atomic.Bool
	var done atomic.Int64 // operations
	var crowd sync.WaitGroup
	for n := range 4 {
		session := fmt.Sprint("s", n)
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			for range 50 {
				if done.Add(1) == 180 {
					stopping.Store(true)
					leases.Close()
				}
				d := devices[seed.IntN(len(devices))]
				ops := crowdOps[d.Type]
				o := ops[seed.IntN(len(ops))]
				if seed.IntN(6) == 0 {
					o = [2]string{wire.OpRelease, `{}`}
				}
				op := wire.HardwareOp{Device: d.ID, Op: o[0], Args: json.RawMessage(o[1]), Hold: seed.IntN(3) == 0}
				r, _, err := disp.Do(t.Context(), device.Caller{Session: session, Holder: "h", Streams: true}, op)
				if wire.CodeOf(err) == wire.InternalError && !stopping.Load() {
					t.Errorf("%s %s: %v", d.ID, o[0], err)
				}
				if s, ok := r.Result.(interface{ OpenedStream() string }); ok && seed.IntN(2) == 0 {
					hub.CloseStream(s.OpenedStream(), stream.Owner{Session: session})
				}
			}
		})
	}
	crowd.Go(func() { // not after each other, or the rest would do without
		for i := range 15 {
			unplug(t, b, devices[i%len(devices)].ID)
			if err := reg.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
			replug(t, b, devices[i%len(devices)].ID)
			if err := reg.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	crowd.Wait()
	leases.Close()
	hub.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func unplug(t *testing.T, b *sim.Bench, id string) {
	typ, name, _ := strings.Cut(id, ":")
	switch typ {
	case device.Serial:
		b.Serial.Unplug(name)
	case device.USB:
		b.USB.Unplug(name[strings.Index(name, "-")+1:])
	case device.I2C:
		must(t, b.Buses.Unplug("i2c-"+name))
	case device.SPI:
		must(t, b.Buses.Unplug("spidev"+name))
	case device.GPIO:
		if id == "gpio:pinctrl-bcm2711" {
			b.GPIO.Chip("gpiochip0").Vanish()
		}
	}
}

func replug(t *testing.T, b *sim.Bench, id string) {
	typ, name, _ := strings.Cut(id, ":")
	switch typ {
	case device.Serial:
		must(t, b.Serial.Replug(name))
	case device.USB:
		must(t, b.USB.Replug(name[strings.Index(name, "-")+1:]))
	case device.I2C:
		must(t, b.Buses.Replug("i2c-"+name))
	case device.SPI:
		must(t, b.Buses.Replug("spidev"+name))
	case device.GPIO:
		if id == "gpio:pinctrl-bcm2711" {
			b.GPIO.Chip("gpiochip0").Return()
		}
	}
}

func must(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}
