package cli

import (
	"context"
	"encoding/hex"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) usbWatch() *cobra.Command {
	var (
		f     usbFlags
		until untilFlags
		size  int
	)
	cmd := &cobra.Command{
		Use:   "watch [MACHINE] [DEVICE]",
		Short: "Show what comes from an endpoint, packet by packet",
		Long: `watch shows what comes from a bulk or interrupt endpoint: of a HID device its input
reports. Each packet is a line with its time; --raw writes the bytes alone, as they
are, --text shows them as text. It ends with Ctrl-C.`,
		Example: "  farhand usb watch pi 046d:c31c --detach\n  farhand usb watch pi 2341:0043 -e 0x81 --json --count 10",
		Args:    between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := wire.USBWatch{Size: size, DetachKernelDriver: f.detach}
			var err error
			if request.Interface, request.Alternate, request.Endpoint, err = f.target(); err != nil {
				return err
			}
			return a.onDevice(cmd, "usb", split("usb", args, 0, nil), false, func(ctx context.Context, at spot) error {
				bounded, cancel, err := until.bound(ctx)
				if err != nil {
					return err
				}
				defer cancel()
				st, opened, err := at.session.USBWatch(ctx, at.device, request)
				if err != nil {
					return err
				}
				return a.follow(bounded, st, watching{opened: opened, record: records(a, until.count, func(p wire.USBPacket) error {
					return a.printPacket(p, f.form)
				})})
			})
		},
		ValidArgsFunction: a.completeDevice("usb"),
	}
	cmd.Flags().BoolVar(&f.detach, "detach", false, "take the interface away from the kernel's driver meanwhile")
	f.addEndpoint(cmd)
	f.form.addOut(cmd)
	until.add(cmd, "packets")
	cmd.Flags().IntVar(&size, "size", 0, "bytes of one transfer at most (default: a packet, of bulk 4096)")
	return cmd
}

func (a *app) printPacket(p wire.USBPacket, form byteForm) error {
	switch {
	case form.raw:
		_, err := a.env.Stdout.Write(p.Data)
		return err
	case form.text:
		a.tell("%s  %s", unixMoment(p.Time), clean(visible(p.Data)))
	default:
		a.tell("%s  %3d  %s", unixMoment(p.Time), len(p.Data), spaced(hex.EncodeToString(p.Data)))
	}
	return a.outErr
}

// spaced puts a space between pairs of digits.
func spaced(digits string) string {
	out := make([]byte, 0, len(digits)*3/2)
	for i := 0; i+1 < len(digits); i += 2 {
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(out, digits[i], digits[i+1])
	}
	return string(out)
}
