package cli

import (
	"context"
	"encoding/hex"
	"io"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialRead() *cobra.Command {
	var (
		mode  modeFlags
		form  dataForm
		until string
		size  int
	)
	cmd := &cobra.Command{
		Use:   "read [MACHINE] [DEVICE]",
		Short: "Read from a serial port",
		Long: `read writes what comes in at a serial port to standard output, until --size bytes,
--until or --timeout. With --until it gives 1 if the pattern did not come.`,
		Example: `  farhand serial read pi /dev/ttyUSB0 --until '\r\n' --timeout 10s`,
		Args:    between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			request := wire.SerialRead{Size: size, TimeoutSeconds: seconds, Until: pattern, Mode: set}
			return a.onDevice(cmd, "serial", split("serial", args, 0, nil), mode.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.SerialRead(ctx, at.device, request, at.hold)
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
	return cmd
}

// printSerial writes what was read, as it came or as a dump.
func (a *app) printSerial(got wire.SerialData, wanted bool, form dataForm) error {
	var err error
	switch {
	case a.json:
		err = a.printJSON(got)
	case form.hex && a.style.outTTY:
		_, err = io.WriteString(a.env.Stdout, dump(got.Data, a.style.width()))
	case form.hex:
		_, err = io.WriteString(a.env.Stdout, hex.EncodeToString(got.Data)+"\n")
	default:
		_, err = io.WriteString(a.env.Stdout, a.received(got.Data, form))
	}
	if got.Lost > 0 {
		a.note("%d bytes before these were lost.", got.Lost)
	}
	if err != nil || !wanted || got.StopReason == "until" {
		return err
	}
	if a.json {
		return exitStatus(exitFailed)
	}
	if n := len(got.Data); a.style.outTTY && !form.hex && n > 0 && got.Data[n-1] != '\n' {
		a.note("") // the note gets a line of its own
	}
	why := "in the time given; --timeout D waits longer"
	if got.StopReason == "size" {
		why = "within the size; --size N reads more"
	}
	a.note("The pattern did not come %s. %d bytes came.", why, got.BytesSeen)
	return exitStatus(exitFailed)
}
