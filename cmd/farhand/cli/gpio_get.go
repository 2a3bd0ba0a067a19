package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) gpioGet() *cobra.Command {
	var (
		lines       lineFlags
		hold, brief bool
	)
	cmd := &cobra.Command{
		Use:   "get [MACHINE] [DEVICE] LINE...",
		Short: "Read the levels of lines",
		Long: `get reads lines as they are, outputs too, and changes nothing, unless flags say how
the line is to be: then it becomes an input that is set so.`,
		Example: `  farhand gpio get pi GPIO17 GPIO27
  farhand gpio get pi pin 11 --pull up
  test "$(farhand gpio get pi GPIO17 --brief)" = 1`,
		Args: between(1, 3+wire.MaxGPIOLines, "[MACHINE] [DEVICE] LINE..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := lineWords(args, isLine)
			if err != nil {
				return err
			}
			if len(w.rest) == 0 {
				return usage("name at least one LINE, such as GPIO17")
			}
			which := names(w.rest)
			configure, err := lines.configuration(which, "in")
			if err != nil {
				return err
			}
			return a.onDevice(cmd, "gpio", w, hold, func(ctx context.Context, at spot) error {
				if lines.given() {
					if _, err := at.session.GPIOConfigure(ctx, at.device, configure, true); err != nil {
						return err
					}
				}
				got, err := at.session.GPIOGet(ctx, at.device, wire.GPIOGet{GPIOSelect: which}, at.hold)
				if lines.given() && !hold {
					bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
					defer cancel()
					if _, failed := at.session.ReleaseLines(bounded, at.device, which.Lines.Names...); err == nil {
						err = failed
					}
				}
				if err != nil {
					return err
				}
				return a.printLevels(got, brief)
			})
		},
		ValidArgsFunction: a.completeLine(""),
	}
	lines.add(cmd)
	lines.addDebounce(cmd)
	addHold(cmd, &hold)
	cmd.Flags().BoolVarP(&brief, "brief", "q", false, "only the levels, one on a line")
	return cmd
}
