package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialWrite() *cobra.Command {
	var (
		mode  modeFlags
		form  dataForm
		drain bool
	)
	cmd := &cobra.Command{
		Use:     "write [MACHINE] [DEVICE] DATA",
		Short:   "Write to a serial port",
		Long:    "write sends DATA, or standard input for -, to a serial port.",
		Example: `  farhand serial write pi /dev/ttyUSB0 'OUTP ON\n'`,
		Args:    between(1, 3, "[MACHINE] [DEVICE] DATA"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("serial", args, 1, nil)
			data, err := a.data(w.rest[0], form)
			if err != nil {
				return err
			}
			seconds, err := mode.seconds()
			if err != nil {
				return err
			}
			set, err := mode.mode()
			if err != nil {
				return err
			}
			request := wire.SerialWrite{Data: data, Drain: drain, TimeoutSeconds: seconds, Mode: set}
			return a.onDevice(cmd, "serial", w, mode.hold, func(ctx context.Context, at spot) error {
				written, err := at.session.SerialWrite(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				a.tellOpened(written.Opened)
				if a.json {
					return a.printJSON(written)
				}
				if written.BytesWritten < len(data) {
					return wire.Errorf(wire.HardwareTransferFailed, "only %d of %d bytes were written", written.BytesWritten, len(data))
				}
				return nil
			})
		},
		ValidArgsFunction: a.completeDevice("serial"),
	}
	mode.add(cmd)
	mode.addTimeout(cmd, "give up after this `DURATION`")
	form.add(cmd)
	cmd.Flags().BoolVar(&drain, "drain", false, "wait until the bytes have left the port")
	return cmd
}
