package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) usb() *cobra.Command {
	g := group("usb", "Talk to USB devices of a machine",
		a.usbList(), a.usbDescribe(), a.usbControl(), a.usbSend(), a.usbReceive(), a.usbWatch(), a.usbHID(), a.usbReset())
	g.Long = `usb talks to USB devices directly, without a driver of the kernel. DEVICE is an id as
usb list shows it, vendor and product such as 2341:0043, or another name of it.

An interface that a driver of the kernel has is busy; --detach takes it away from the
driver until the device is given back, if that was granted.`
	g.Example = `  farhand usb list pi
  farhand usb describe pi 2341:0043
  farhand usb send pi 2341:0043 --endpoint 0x02 'de:ad:be:ef'
  farhand usb receive pi 2341:0043 --endpoint 0x81 --size 64
  farhand usb watch pi 2341:0043`
	return g
}

func (a *app) usbList() *cobra.Command {
	return &cobra.Command{
		Use:   "list [MACHINE]",
		Short: "List the USB devices of a machine",
		Args:  between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listDevices(cmd, args, "usb")
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

// usbFlags are those of transfers.
type usbFlags struct {
	form                           byteForm
	hold, detach                   bool
	interfaceNr, endpoint, setting string
	timeout                        string
}

// add adds what every transfer has; addEndpoint what those to an endpoint have.
func (f *usbFlags) add(cmd *cobra.Command) {
	addHold(cmd, &f.hold)
	cmd.Flags().BoolVar(&f.detach, "detach", false, "take the interface away from the kernel's driver until the device is given back")
}

func (f *usbFlags) addTimeout(cmd *cobra.Command, normally string) {
	cmd.Flags().StringVar(&f.timeout, "timeout", "", "give up after this `DURATION` (default "+normally+")")
}

func (f *usbFlags) addEndpoint(cmd *cobra.Command) {
	f.addInterface(cmd)
	cmd.Flags().StringVarP(&f.endpoint, "endpoint", "e", "", "`ENDPOINT`, such as 0x81 (default: the only one)")
	cmd.Flags().StringVar(&f.setting, "alternate", "", "alternate `SETTING` of the interface (default: the one that is set)")
}

func (f *usbFlags) addInterface(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.interfaceNr, "interface", "i", "", "`NUMBER` of the interface (default: the one that has the endpoint)")
}

// usbNumber reads a number of a flag, 0x for hexadecimal; nil if it wasn't given.
func usbNumber(flag, value string) (*wire.USBNumber, error) {
	if value == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(value, 0, 16)
	if err != nil {
		return nil, usage("--%s %q is no number, such as 1 or 0x81", flag, value)
	}
	v := wire.USBNumber(n)
	return &v, nil
}

// target is what the flags name.
func (f *usbFlags) target() (iface, setting *wire.USBNumber, endpoint wire.USBNumber, err error) {
	if iface, err = usbNumber("interface", f.interfaceNr); err != nil {
		return
	}
	if setting, err = usbNumber("alternate", f.setting); err != nil {
		return
	}
	e, err := usbNumber("endpoint", f.endpoint)
	if e != nil {
		endpoint = *e
	}
	return
}

// printTransfer shows what came back; sent is how much was to be sent, or -1.
func (a *app) printTransfer(got wire.USBTransferred, form byteForm, sent int) error {
	if a.json {
		if err := a.printJSON(got); err != nil {
			return err
		}
	} else if sent < 0 && len(got.Data) > 0 {
		if err := a.printBytes(got.Data, form); err != nil {
			return err
		}
	}
	if got.InWaiting > 0 {
		a.note("%d bytes more have come; the next receive begins with them.", got.InWaiting)
	}
	if r := got.Recovery; r != nil {
		state := "the device is back"
		if !r.OK {
			state = "the device did not come back"
		}
		a.note("After the timeout: %s; %s.", clean(join(r.Steps)), state)
	}
	if !got.TimedOut {
		return nil
	}
	if sent >= 0 {
		a.note("Time ran out: %d of %d bytes were sent.", got.BytesTransferred, sent)
	} else {
		a.note("Time ran out: %d bytes came. --timeout D waits longer.", got.BytesTransferred)
	}
	if got.Hint != "" {
		a.note("  %s", clean(got.Hint))
	}
	return exitStatus(exitFailed)
}

func (a *app) usbSend() *cobra.Command {
	var (
		f    usbFlags
		zero bool
	)
	cmd := &cobra.Command{
		Use:     "send [MACHINE] [DEVICE] DATA",
		Short:   "Send to a bulk or interrupt endpoint",
		Long:    "send does one transfer to a device. It gives 1 if time ran out.\n\n" + byteHelp,
		Example: "  farhand usb send pi 2341:0043 -e 0x02 de:ad\n  farhand usb send pi 2341:0043 -e 2 @firmware.bin --timeout 10s",
		Args:    between(1, 3, "[MACHINE] [DEVICE] DATA"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("usb", args, 1, nil)
			data, err := f.form.bytes(a, w.rest)
			if err != nil {
				return err
			}
			request := wire.USBSend{Data: data, ZeroPacket: zero, DetachKernelDriver: f.detach}
			if request.Interface, request.Alternate, request.Endpoint, err = f.target(); err != nil {
				return err
			}
			if request.TimeoutSeconds, err = seconds("timeout", f.timeout); err != nil {
				return err
			}
			return a.onDevice(cmd, "usb", w, f.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.USBSend(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				return a.printTransfer(got, f.form, len(data))
			})
		},
		ValidArgsFunction: a.completeDevice("usb"),
	}
	f.add(cmd)
	f.addEndpoint(cmd)
	f.addTimeout(cmd, "5s")
	f.form.addIn(cmd)
	cmd.Flags().BoolVar(&zero, "zero-packet", false, "end a transfer that fills its last packet with an empty one")
	return cmd
}

func (a *app) usbReceive() *cobra.Command {
	var (
		f    usbFlags
		size int
	)
	cmd := &cobra.Command{
		Use:   "receive [MACHINE] [DEVICE]",
		Short: "Receive from a bulk or interrupt endpoint",
		Long: `receive does one transfer from a device: until --size bytes, a packet that isn't full,
or --timeout. It gives 1 if time ran out.`,
		Example: "  farhand usb receive pi 2341:0043 -e 0x81 --size 64 --hex",
		Args:    between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := wire.USBReceive{Size: size, DetachKernelDriver: f.detach}
			var err error
			if request.Interface, request.Alternate, request.Endpoint, err = f.target(); err != nil {
				return err
			}
			if request.TimeoutSeconds, err = seconds("timeout", f.timeout); err != nil {
				return err
			}
			return a.onDevice(cmd, "usb", split("usb", args, 0, nil), f.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.USBReceive(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				return a.printTransfer(got, f.form, -1)
			})
		},
		ValidArgsFunction: a.completeDevice("usb"),
	}
	f.add(cmd)
	f.addEndpoint(cmd)
	f.addTimeout(cmd, "1s")
	f.form.addOut(cmd)
	cmd.Flags().IntVar(&size, "size", 0, "at most so many bytes (default 4096)")
	return cmd
}

func (a *app) usbReset() *cobra.Command {
	return &cobra.Command{
		Use:   "reset [MACHINE] DEVICE",
		Short: "Reset the port that a device is plugged into",
		Long: `reset makes the device begin anew, as if it had just been plugged in. Every stream of
it ends.`,
		Args: between(1, 2, "[MACHINE] DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("usb", args, 0, nil)
			if w.device == "" {
				return usage("name the DEVICE that is to be reset")
			}
			return a.onDevice(cmd, "usb", w, false, func(ctx context.Context, at spot) error {
				done, err := at.session.USBReset(ctx, at.device, wire.USBReset{}, at.hold)
				if err != nil {
					return err
				}
				return a.done(done)
			})
		},
		ValidArgsFunction: a.completeDevice("usb"),
	}
}
