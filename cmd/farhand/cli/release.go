package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) release() *cobra.Command {
	return &cobra.Command{
		Use:   "release [MACHINE] DEVICE [LINE...]",
		Short: "Give back a device, or lines of one, that this login keeps",
		Long: `release gives back what this login keeps of a machine: a device that --hold kept, or
lines that were set, all of them if none is named. What becomes of outputs is what was
said when they were set.`,
		Example: "  farhand release pi serial:usb-2341:0043-95530\n  farhand release pi gpio:bcm GPIO17",
		Args:    between(1, 2+2*wire.MaxGPIOLines, "[MACHINE] DEVICE [LINE...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var w words
			if !isDevice(args[0]) {
				w.machine, args = args[0], args[1:]
			}
			switch {
			case len(args) == 0:
				return usage("name the DEVICE, too, as farhand devices shows it")
			case !isDevice(args[0]):
				return usage("%q is not how devices are called: name the DEVICE as farhand devices shows it, such as i2c:1", args[0])
			}
			w.device = deviceName("", args[0])
			lines := names(joinPins(args[1:])).Lines.Names
			return a.onDevice(cmd, "", w, false, func(ctx context.Context, at spot) error {
				had, err := at.session.ReleaseLines(ctx, at.device, lines...)
				if err != nil {
					return err
				}
				return a.released(at, had)
			})
		},
		ValidArgsFunction: a.completeDevice(""),
	}
}

// released says what became of RELEASE.
func (a *app) released(at spot, had wire.Released) error {
	if !had.Released {
		a.note("This login didn't have it.")
	}
	return a.done(struct {
		Machine string `json:"machine_id"`
		Device  string `json:"device"`
		wire.Released
	}{at.session.Info().MachineID, at.device, had})
}
