package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialControl() *cobra.Command {
	var (
		mode            modeFlags
		dtr, rts, pause string
	)
	cmd := &cobra.Command{
		Use:     "control [MACHINE] DEVICE",
		Short:   "Set and show the modem lines of a serial port",
		Example: "  farhand serial control pi /dev/ttyUSB0\n  farhand serial control pi /dev/ttyUSB0 --dtr off --break 250ms",
		Args:    between(1, 2, "[MACHINE] DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := wire.SerialControl{Mode: mode.mode()}
			var err error
			if request.DTR, err = onOff("dtr", dtr); err != nil {
				return err
			}
			if request.RTS, err = onOff("rts", rts); err != nil {
				return err
			}
			if pause != "" {
				d, err := duration(pause)
				if err != nil || d <= 0 {
					return usage("--break %q is not a duration such as 250ms", pause)
				}
				seconds := d.Seconds()
				request.BreakSeconds = &seconds
			}
			return a.withPort(cmd, args, mode.hold, func(ctx context.Context, p port) error {
				lines, err := p.session.SerialControl(ctx, p.device, request, p.hold)
				if err != nil {
					return err
				}
				return a.printLines(lines)
			})
		},
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
		t.add(plain(line.name), state)
	}
	t.add(plain("baud"), plain(fmt.Sprint(l.Baudrate)))
	return t.write(a.env.Stdout, a.style.out, a.style.width)
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
		Use:   "release [MACHINE] DEVICE",
		Short: "Give back a port that --hold kept",
		Args:  between(1, 2, "[MACHINE] DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPort(cmd, args, false, func(ctx context.Context, p port) error {
				if err := p.session.Release(ctx, p.device); err != nil {
					return err
				}
				return a.done(map[string]string{"machine_id": p.session.Info().MachineID, "device": p.device})
			})
		},
	}
}
