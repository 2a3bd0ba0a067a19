package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) usbHID() *cobra.Command {
	g := group("hid", "Get and set reports of HID devices", a.usbReport("get"), a.usbReport("set"))
	g.Long = `hid gets and sets reports by control transfers. Where a device numbers its reports,
the data begins with the number, in both directions.`
	g.Example = "  farhand usb hid get pi 16c0:05df --report feature --size 8\n  farhand usb hid set pi 16c0:05df ff010000"
	return g
}

func (a *app) usbReport(action string) *cobra.Command {
	var (
		f          usbFlags
		report, id string
		size       int
		set        = action == "set"
	)
	cmd := &cobra.Command{Use: "get [MACHINE] [DEVICE]", Short: "Get a report", Args: between(0, 2, "[MACHINE] [DEVICE]")}
	if set {
		cmd = &cobra.Command{Use: "set [MACHINE] [DEVICE] DATA", Short: "Set a report", Long: byteHelp, Args: between(1, 3, "[MACHINE] [DEVICE] DATA")}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w := split("usb", args, map[bool]int{true: 1}[set], nil)
		request := wire.USBHID{Action: action, Report: report, Size: size, DetachKernelDriver: f.detach}
		var err error
		if request.Interface, _, _, err = f.target(); err != nil {
			return err
		}
		n, err := usbNumber("id", id)
		if err != nil {
			return err
		}
		if n != nil {
			request.ID = *n
		}
		if set {
			if request.Data, err = f.form.bytes(a, w.rest); err != nil {
				return err
			}
		}
		if request.TimeoutSeconds, err = seconds("timeout", f.timeout); err != nil {
			return err
		}
		return a.onDevice(cmd, "usb", w, f.hold, func(ctx context.Context, at spot) error {
			got, err := at.session.USBHID(ctx, at.device, request, at.hold)
			if err != nil {
				return err
			}
			sent := -1
			if set {
				sent = len(request.Data)
			}
			return a.printTransfer(got, f.form, sent)
		})
	}
	cmd.ValidArgsFunction = a.completeDevice("usb")
	f.add(cmd)
	f.addInterface(cmd)
	f.addTimeout(cmd, "5s")
	flags := cmd.Flags()
	flags.StringVar(&report, "report", "", "input, output or feature (default: input to get, output to set)")
	choices(cmd, "report", "input", "output", "feature")
	flags.StringVar(&id, "id", "", "`NUMBER` of the report (default 0: not numbered)")
	if set {
		f.form.addIn(cmd)
	} else {
		f.form.addOut(cmd)
		flags.IntVar(&size, "size", 0, "at most so many bytes (default 64)")
	}
	return cmd
}
