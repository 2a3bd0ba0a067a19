package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) i2cScan() *cobra.Command {
	var (
		method, begin, end string
	)
	cmd := &cobra.Command{
		Use:   "scan [MACHINE] [DEVICE]",
		Short: "Show which addresses of a bus answer",
		Long: `scan asks every address of a bus whether something is there. UU is an address that a
driver of the kernel has: it isn't asked. A scan can upset some chips; --method read
and quick are the two ways to ask, auto takes the one that is safer for each address.`,
		Example: "  farhand i2c scan pi i2c:1\n  farhand i2c scan pi --first 0x40 --last 0x4f --json",
		Args:    between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := wire.I2CScan{Method: method}
			for _, bound := range []struct {
				flag, text string
				to         **wire.I2CAddress
			}{{"first", begin, &request.First}, {"last", end, &request.Last}} {
				if bound.text == "" {
					continue
				}
				v, err := wire.ParseI2CAddress(bound.text)
				if err != nil {
					return usage("--%s %q is no address, such as 0x40", bound.flag, bound.text)
				}
				*bound.to = &v
			}
			return a.onDevice(cmd, "i2c", split("i2c", args, 0, nil), false, func(ctx context.Context, at spot) error {
				found, err := at.session.I2CScan(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				if a.json {
					found.Addresses = append([]wire.I2CFound{}, found.Addresses...)
					return a.printJSON(found)
				}
				return a.printScan(found)
			})
		},
		ValidArgsFunction: a.completeDevice("i2c"),
	}
	flags := cmd.Flags()
	flags.StringVar(&method, "method", "auto", "auto, quick or read")
	choices(cmd, "method", "auto", "quick", "read")
	flags.StringVar(&begin, "first", "", "begin at this `ADDRESS` (default 0x08)")
	flags.StringVar(&end, "last", "", "end at this `ADDRESS` (default 0x77)")
	return cmd
}

// printScan draws the grid that i2cdetect draws, half as wide where the terminal is
// too narrow for that.
func (a *app) printScan(s wire.I2CScanned) error {
	var b strings.Builder
	columns := 16
	if a.style.width() > 0 && a.style.width() < len("00:")+16*len(" 00") {
		columns = 8
	}
	b.WriteString("    ")
	for n := range columns {
		fmt.Fprintf(&b, " %x", n)
		if n < columns-1 {
			b.WriteByte(' ')
		}
	}
	b.WriteByte('\n')
	for row := int(s.First) &^ (columns - 1); row <= int(s.Last); row += columns {
		line := fmt.Sprintf("%02x:", row)
		for addr := row; addr < row+columns; addr++ {
			line += " "
			i := slices.IndexFunc(s.Addresses, func(f wire.I2CFound) bool { return int(f.Address) == addr })
			switch {
			case addr < int(s.First) || addr > int(s.Last):
				line += "  "
			case i < 0:
				line += a.style.out.dim("--")
			case s.Addresses[i].Status == wire.I2CKernel:
				line += a.style.out.blue("UU")
			default:
				line += a.style.out.green(fmt.Sprintf("%02x", addr))
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for _, f := range s.Addresses {
		if f.Status == wire.I2CKernel {
			b.WriteString(fold(fmt.Sprintf("%s is used by the kernel: %s", f.Address, clean(first(f.Driver, "a driver"))), a.style.fold()) + "\n")
		}
	}
	a.printf("%s", b.String())
	if len(s.Addresses) == 0 {
		a.note("Nothing answers: check power, the two wires and their pull-ups.")
	}
	return nil
}
