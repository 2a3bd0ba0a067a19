package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialTransact() *cobra.Command {
	var (
		mode  modeFlags
		form  dataForm
		until string
		size  int
		flush bool
	)
	cmd := &cobra.Command{
		Use:   "transact [MACHINE] [DEVICE] DATA",
		Short: "Write to a serial port and read the answer",
		Long: `transact sends DATA, or standard input for -, and writes what comes back to standard
output, until --size bytes, --until or --timeout. Nobody else gets between the two.
With --until it gives 1 if the pattern did not come.`,
		Example: `  farhand serial transact pi /dev/ttyUSB0 '*IDN?\n' --until '\n'`,
		Args:    between(1, 3, "[MACHINE] [DEVICE] DATA"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("serial", args, 1, nil)
			data, err := a.data(w.rest[0], form)
			if err != nil {
				return err
			}
			pattern, err := form.bytes(until)
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
			request := wire.SerialTransact{
				Data: data, Until: pattern, Size: size, TimeoutSeconds: seconds, Flush: flush, Mode: set,
			}
			return a.onDevice(cmd, "serial", w, mode.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.SerialTransact(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				a.tellOpened(got.Opened)
				return a.printSerial(got, until != "", form)
			})
		},
		ValidArgsFunction: a.completeDevice("serial"),
	}
	mode.add(cmd)
	mode.addTimeout(cmd, "give up after this `DURATION` (default 1s)")
	form.add(cmd)
	cmd.Flags().StringVar(&until, "until", "", "stop after this `PATTERN`")
	cmd.Flags().IntVar(&size, "size", 0, "stop after this many bytes (default 4096)")
	cmd.Flags().BoolVar(&flush, "flush", false, "drop what was waiting before")
	return cmd
}
