package usbsim_test

import (
	"testing"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/usb"
	"farhand/usb/usbsim"
	"farhand/usb/usbtest"
	"farhand/wire"
)

func bench(t testing.TB) *usbsim.Bench {
	b := usbsim.New(usbsim.Standard(), nil)
	t.Cleanup(func() { b.Close() })
	return b
}

func TestDevice(t *testing.T) {
	usbtest.Run(t, func(t testing.TB) usbtest.Bench {
		b := bench(t)
		return usbtest.Bench{
			Family: device.Family{Driver: b, Service: usb.NewService(b, nil)}, ID: b.ID(usbsim.EchoName),
			Report:    func(data []byte) { b.Port(usbsim.EchoName).Queue(usbsim.ReportIn, data) },
			SetReport: true,
			Unplug:    func() { b.Unplug(usbsim.EchoName) },
			Replug: func() {
				if err := b.Replug(usbsim.EchoName); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		b := bench(t)
		return devicetest.Bench{
			Family: device.Family{Driver: b, Service: usb.NewService(b, nil)}, ID: b.ID(usbsim.EchoName),
			Op:     wire.HardwareOp{Op: wire.OpUSBSend, Args: []byte(`{"interface":0,"endpoint":"0x01","data":"aGk="}`)},
			Unplug: func() { b.Unplug(usbsim.EchoName) },
			Replug: func() {
				if err := b.Replug(usbsim.EchoName); err != nil {
					t.Error(err)
				}
			},
		}
	})
}
