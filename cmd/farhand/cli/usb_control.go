package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) usbControl() *cobra.Command {
	var (
		f      usbFlags
		length int
	)
	cmd := &cobra.Command{
		Use:   "control [MACHINE] [DEVICE] REQUEST_TYPE REQUEST [VALUE [INDEX]]",
		Short: "Do a control transfer on endpoint 0",
		Long: `control does one control transfer. The four numbers are those of the USB specification,
0x for hexadecimal; bit 7 of REQUEST_TYPE says which way it goes: with it --length
bytes are read, without it --data is sent.`,
		Example: `  farhand usb control pi 2341:0043 0x80 6 0x0100 --length 18
  farhand usb control pi 2341:0043 0x21 0x22 3`,
		Args: between(2, 6, "[MACHINE] [DEVICE] REQUEST_TYPE REQUEST [VALUE [INDEX]]"),
	}
	var data []string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w := split("usb", args, 2, isNumber).exact("usb", isNumber)
		if len(w.rest) < 2 || len(w.rest) > 4 {
			return usage("control takes REQUEST_TYPE REQUEST [VALUE [INDEX]] after the device")
		}
		request := wire.USBControl{Length: length, DetachKernelDriver: f.detach}
		for i, to := range []*wire.USBNumber{&request.RequestType, &request.Request, &request.Value, &request.Index}[:len(w.rest)] {
			n, err := strconv.ParseUint(w.rest[i], 0, 16)
			if err != nil {
				return usage("%q is no number, such as 6 or 0x80", w.rest[i])
			}
			*to = wire.USBNumber(n)
		}
		reads := request.RequestType&0x80 != 0
		var err error
		if request.Data, err = f.form.bytes(a, data); err != nil {
			return err
		}
		switch {
		case reads && len(request.Data) > 0:
			return usage("a REQUEST_TYPE with bit 7 reads: --length, not --data")
		case !reads && length > 0:
			return usage("a REQUEST_TYPE without bit 7 sends: --data, not --length")
		}
		if request.TimeoutSeconds, err = seconds("timeout", f.timeout); err != nil {
			return err
		}
		return a.onDevice(cmd, "usb", w, f.hold, func(ctx context.Context, at spot) error {
			got, err := at.session.USBControl(ctx, at.device, request, at.hold)
			if err != nil {
				return err
			}
			sent := len(request.Data)
			if reads {
				sent = -1
			}
			return a.printTransfer(got, f.form, sent)
		})
	}
	cmd.ValidArgsFunction = a.completeDevice("usb")
	f.add(cmd)
	f.addTimeout(cmd, "5s")
	f.form.addIn(cmd)
	f.form.addOut(cmd)
	cmd.Flags().IntVar(&length, "length", 0, "how many bytes to read")
	cmd.Flags().StringArrayVar(&data, "data", nil, "`DATA` to send: hexadecimal, @FILE or - for standard input")
	return cmd
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 0, 16)
	return err == nil
}
