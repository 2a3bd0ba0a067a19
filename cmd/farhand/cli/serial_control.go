package cli

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialControl() *cobra.Command {
	var (
		mode            modeFlags
		dtr, rts, pause string
	)
	cmd := &cobra.Command{
		Use:     "control [MACHINE] [DEVICE]",
		Short:   "Set and show the modem lines of a serial port",
		Example: "  farhand serial control pi /dev/ttyUSB0\n  farhand serial control pi /dev/ttyUSB0 --dtr off --break 250ms",
		Args:    between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := mode.mode()
			if err != nil {
				return err
			}
			request := wire.SerialControl{Mode: set}
			if request.DTR, err = onOff("dtr", dtr); err != nil {
				choices(cmd, "dtr", "on", "off")
				return err
			}
			if request.RTS, err = onOff("rts", rts); err != nil {
				choices(cmd, "rts", "on", "off")
				return err
			}
			if request.BreakSeconds, err = seconds("break", pause); err != nil {
				return err
			}
			return a.onDevice(cmd, "serial", split("serial", args, 0, nil), mode.hold, func(ctx context.Context, at spot) error {
				lines, err := at.session.SerialControl(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				a.tellOpened(lines.Opened)
				return a.printLines(lines)
			})
		},
		ValidArgsFunction: a.completeDevice("serial"),
	}
	mode.add(cmd)
	cmd.Flags().StringVar(&dtr, "dtr", "", "set DTR `on` or off")
	cmd.Flags().StringVar(&rts, "rts", "", "set RTS `on` or off")
	cmd.Flags().StringVar(&pause, "break", "", "send a break of this `DURATION`")
	return cmd
}

func (a *app) printLines(l wire.SerialLines) error {
	if a.json {
		return a.printJSON(l)
	}
	var t table
	for _, line := range []struct {
		name string
		on   bool
	}{{"DTR", l.DTR}, {"RTS", l.RTS}, {"CTS", l.CTS}, {"DSR", l.DSR}, {"DCD", l.DCD}, {"RI", l.RI}} {
		state := cell{"off", a.style.out.dim}
		if line.on {
			state = cell{"on", a.style.out.green}
		}
		if l.ModemLines {
			t.add(plain(line.name), state)
		}
	}
	rate := strconv.Itoa(l.Baudrate)
	if d := l.BaudrateDeviation; math.Abs(d) >= 0.1 {
		rate += fmt.Sprintf(" (%+.1f %% off what was asked)", d)
	}
	t.add(plain("baud"), plain(rate))
	if l.LowLatency {
		t.add(plain("latency"), plain("low"))
	}
	if r := l.RS485; r != nil && r.Enabled != nil && *r.Enabled {
		t.add(plain("RS-485"), cell{"on", a.style.out.green})
	}
	if !l.ModemLines {
		a.note("The port has no modem lines.")
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func onOff(flag, value string) (*bool, error) {
	on, off := true, false
	switch value {
	case "":
		return nil, nil
	case "on", "1", "true":
		return &on, nil
	case "off", "0", "false":
		return &off, nil
	}
	return nil, usage("--%s is on or off, not %q", flag, value)
}

func (a *app) serialRelease() *cobra.Command {
	return &cobra.Command{
		Use:   "release [MACHINE] [DEVICE]",
		Short: "Give back a port that --hold kept",
		Args:  between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDevice(cmd, "serial", split("serial", args, 0, nil), false, func(ctx context.Context, at spot) error {
				had, err := at.session.ReleaseLines(ctx, at.device)
				if err != nil {
					return err
				}
				return a.released(at, had)
			})
		},
		ValidArgsFunction: a.completeDevice("serial"),
	}
}
