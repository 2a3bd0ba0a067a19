package serialsim_test

import (
	"io"
	"testing"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/serialio"
	"farhand/serialio/serialsim"
	"farhand/serialio/serialtest"
	"farhand/wire"
)

// tap is an instrument that the test plays itself.
type tap struct {
	in      *io.PipeReader // what the port sends
	toTest  *io.PipeWriter
	out     *io.PipeWriter // what the test sends
	fromOut *io.PipeReader
}

func newTap() *tap {
	x := &tap{}
	x.in, x.toTest = io.Pipe()
	x.fromOut, x.out = io.Pipe()
	return x
}

func (x *tap) Read(b []byte) (int, error)  { return x.in.Read(b) }
func (x *tap) Write(b []byte) (int, error) { return x.out.Write(b) }

func (x *tap) Serve(line io.ReadWriter) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.Copy(struct{ io.Writer }{line}, x.fromOut)
		x.fromOut.CloseWithError(err)
	}()
	_, err := io.Copy(x.toTest, struct{ io.Reader }{line})
	x.toTest.CloseWithError(err)
	x.fromOut.Close()
	<-sent
}

func TestPort(t *testing.T) {
	serialtest.Run(t, func(t testing.TB) serialtest.Line {
		first := newTap()
		next := first
		b, err := serialsim.New([]serialsim.Model{{Name: "sim-tap", Desc: "The test", New: func() serialsim.Instrument {
			x := next
			next = newTap()
			return x
		}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			first.in.Close() // a tap that nobody reads must not hold up the end
			b.Close()
		})
		all, err := b.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return serialtest.Line{
			Family: device.Family{Driver: b, Service: serialio.Service{}}, ID: "serial:sim-tap", Node: all[0].Node, Far: first,
			Unplug: func() { first.in.Close(); b.Unplug("sim-tap") },
			Replug: func() {
				if err := b.Replug("sim-tap"); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		b, err := serialsim.New(serialsim.Standard(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return devicetest.Bench{
			Family: device.Family{Driver: b, Service: serialio.Service{}}, ID: "serial:sim-scpi",
			Op:     wire.HardwareOp{Op: wire.OpSerialTransact, Args: []byte(`{"data":"KklETj8K","until":"Cg==","timeout_seconds":10}`)},
			Unplug: func() { b.Unplug("sim-scpi") },
			Replug: func() {
				if err := b.Replug("sim-scpi"); err != nil {
					t.Error(err)
				}
			},
		}
	})
}
