package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialWatch() *cobra.Command {
	var (
		mode  modeFlags
		form  byteForm
		until untilFlags
		from  string
	)
	cmd := &cobra.Command{
		Use:   "watch [MACHINE] [DEVICE]",
		Short: "Show what comes in at a serial port",
		Long: `watch writes what comes in at a serial port to standard output as it comes, until
Ctrl-C. The port keeps what came while nobody watched: --from 0 begins with all of it
that is still there, --from N with an offset that an earlier answer named. Reads of
the same login see the same bytes.`,
		Example: `  farhand serial watch pi /dev/ttyUSB0 -b 9600
  farhand serial watch pi /dev/ttyUSB0 --from 0 --raw > log`,
		Args: between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := mode.mode()
			if err != nil {
				return err
			}
			request := wire.SerialWatch{Mode: set}
			if from != "" {
				n, err := strconv.ParseInt(from, 10, 64)
				if err != nil || n < 0 {
					return usage("--from %q is no offset", from)
				}
				request.From = &n
			}
			return a.onDevice(cmd, "serial", split("serial", args, 0, nil), false, func(ctx context.Context, at spot) error {
				return a.runSerialWatch(ctx, at, request, form, until)
			})
		},
		ValidArgsFunction: a.completeDevice("serial"),
	}
	mode.addMode(cmd)
	form.addOut(cmd)
	until.add(cmd, "bytes")
	cmd.Flags().StringVar(&from, "from", "", "begin at this `OFFSET` of what was received; 0 is all (default: what comes from now on)")
	return cmd
}

func (a *app) runSerialWatch(ctx context.Context, at spot, request wire.SerialWatch, form byteForm, until untilFlags) error {
	bounded, cancel, err := until.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	st, opened, err := at.session.SerialWatch(ctx, at.device, request)
	if err != nil {
		return err
	}
	a.tellOpened(opened.Port)
	left := until.count
	column := 0
	return a.follow(bounded, st, watching{
		opened: opened,
		lost:   func(from, to int64) { a.note("%d bytes were lost here.", to-from) },
		data: func(offset int64, b []byte) error {
			if left > 0 {
				b = b[:min(left, len(b))]
			}
			if !a.json {
				if err := a.printReceived(opened.Start+offset, b, form, &column); err != nil {
					return err
				}
			}
			if left > 0 {
				if left -= len(b); left == 0 {
					return errEnough
				}
			}
			return nil
		},
	})
}

// printReceived writes a piece of what comes in: as it is to a program, safe to
// look at on a terminal. column is where --hex is on its line.
func (a *app) printReceived(offset int64, b []byte, form byteForm, column *int) error {
	text := ""
	each := 16 // bytes a line
	for a.style.width() > 0 && each > 4 && len("00000000 ")+each*len(" 00") > a.style.width() {
		each /= 2
	}
	switch {
	case form.hex:
		for i, c := range b {
			if *column == 0 {
				text += fmt.Sprintf("%08x ", offset+int64(i))
			}
			text += " " + hex.EncodeToString([]byte{c})
			if *column++; *column == each {
				text, *column = text+"\n", 0
			}
		}
	case a.style.outTTY && !form.raw:
		text = visible(b)
	default:
		_, err := a.env.Stdout.Write(b)
		return err
	}
	_, err := io.WriteString(a.env.Stdout, text)
	return err
}
