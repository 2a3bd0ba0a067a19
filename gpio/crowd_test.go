package gpio_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"farhand/gpio"
	"farhand/internal/leak"
	"farhand/stream"
	"farhand/wire"
)

// TestCrowd is four sessions that do everything at once to a few lines while the
// chip is plugged out and in: nothing hangs, nothing is left, and every failure
// is one that there is a reason for.
func TestCrowd(t *testing.T) {
	leak.Check(t)
	x := newRig(t, gpio.ServiceOptions{})
	operations := []struct{ op, args string }{
		{wire.OpGPIOSet, `{"line":%d,"value":1}`},
		{wire.OpGPIOSet, `{"lines":{"%d":1,"7":0},"on_release":0}`},
		{wire.OpGPIOGet, `{"lines":[%d,8]}`},
		{wire.OpGPIOConfigure, `{"line":%d,"pull":"up"}`},
		{wire.OpGPIOConfigure, `{"line":%d,"direction":"out","on_release":"input"}`},
		{wire.OpGPIOWatch, `{"line":%d,"poll_seconds":0.01}`},
		{wire.OpGPIOWatch, `{"lines":[%d,8]}`},
		{wire.OpGPIOPWM, `{"line":%d,"frequency_hz":1000,"duty":0}`},
		{wire.OpGPIOInfo, `{"line":%d,"probe":true}`},
		{wire.OpRelease, `{"line":%d}`},
		{wire.OpRelease, `{}`},
	}
	expected := func(err error) bool {
		for _, code := range []wire.Code{wire.HardwareBusy, wire.DeviceGone, wire.HardwareTransferFailed, wire.InvalidArgument, wire.HardwareNotFound} {
			if errors.Is(err, code) {
				return true
			}
		}
		return err == nil
	}
	var crowd sync.WaitGroup
	for n := range 4 {
		session := fmt.Sprint("s", n)
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			for range 60 {
				o := operations[seed.IntN(len(operations))]
				args := o.args
				if o.args != `{}` {
					args = fmt.Sprintf(o.args, 2+seed.IntN(4))
				}
				r, err := x.Try(session, bcm, o.op, args)
				if !expected(err) {
					t.Errorf("%s %s: %v %v", o.op, args, err, wire.AsError(err).Details)
				}
				if w, ok := r.(wire.GPIOWatching); ok && seed.IntN(2) == 0 {
					x.Hub.CloseStream(w.Stream, stream.Owner{Session: session})
				}
			}
		})
	}
	crowd.Go(func() {
		for range 30 {
			x.chip.Burst(3, 100)
			x.chip.Vanish()
			x.chip.Burst(4, 100)
			x.chip.Return()
			if _, err := x.Try("watcher", bcm, wire.OpGPIOGet, `{"line":9}`); !expected(err) {
				t.Error(err)
			}
		}
	})
	crowd.Wait()
	x.Close()
	if n := x.chip.OpenRequests(); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}
