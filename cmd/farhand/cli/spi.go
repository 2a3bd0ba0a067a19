package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) spi() *cobra.Command {
	g := group("spi", "Talk to chips on SPI buses of a machine", a.spiTransfer())
	g.Long = `spi sends to and receives from the chip behind a chip select: DEVICE is spi:0.0 for
/dev/spidev0.0, and may be left out where there is one.`
	g.Example = `  farhand spi transfer pi spi:0.0 9f -n 3 --hex
  farhand spi transfer pi spi:0.0 w:05 r:1 --mode 3 --speed 1MHz`
	return g
}

type spiFlags struct {
	form                  byteForm
	hold                  bool
	read, mode, bits      int
	speed, cs             string
	duplex, lsb, threeway bool
	split                 bool
}

func (a *app) spiTransfer() *cobra.Command {
	var f spiFlags
	cmd := &cobra.Command{
		Use:   "transfer [MACHINE] [DEVICE] DATA...",
		Short: "Send bytes and receive bytes while the chip is selected",
		Long: `transfer sends DATA and then receives as many bytes as -n says; with --full-duplex
what comes in while DATA is sent is the answer. The chip stays selected from the first
byte to the last.

In the place of DATA may stand any sequence of w:DATA (send), r:N (receive so many),
x:DATA (send, and take what comes in meanwhile) and d:N (wait so many microseconds).

` + byteHelp,
		Example: `  farhand spi transfer pi spi:0.0 9f -n 3 --hex
  farhand spi transfer pi spi:0.0 x:018000 --speed 1.35MHz
  farhand spi transfer pi spi:0.0 w:03000000 r:256 --raw > page.bin`,
		Args: between(0, 1024, "[MACHINE] [DEVICE] DATA..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			least := 1
			if f.read > 0 && !f.form.text {
				least = 0 // a transfer that only receives
			}
			own := func(s string) bool { // "cafe" alone is rather a machine
				return isHex(s) && strings.ContainsAny(s, "0123456789:@-") || isSegment(s)
			}
			if f.form.text {
				own = isSegment
			}
			w := split("spi", args, min(least, len(args)), own).exact("spi", func(s string) bool { return f.form.text || isHex(s) || isSegment(s) })
			request, err := f.request(a, w.rest)
			if err != nil {
				return err
			}
			return a.onDevice(cmd, "spi", w, f.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.SPITransfer(ctx, at.device, request, at.hold)
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(got)
				}
				if got.Pieces > 1 {
					a.note("It was sent in %d pieces, and the chip deselected between them.", got.Pieces)
				}
				if len(got.Data) == 0 {
					return nil
				}
				return a.printBytes(got.Data, f.form)
			})
		},
		ValidArgsFunction: a.completeDevice("spi"),
	}
	f.form.addIn(cmd)
	f.form.addOut(cmd)
	addHold(cmd, &f.hold)
	flags := cmd.Flags()
	flags.IntVarP(&f.read, "number", "n", 0, "receive so many bytes after DATA")
	flags.BoolVar(&f.duplex, "full-duplex", false, "the answer is what comes in while DATA is sent")
	flags.IntVar(&f.mode, "mode", 0, "0 to 3: clock polarity and phase")
	flags.StringVar(&f.speed, "speed", "", "clock: 500kHz, 10MHz (default 500kHz)")
	flags.IntVar(&f.bits, "bits", 0, "bits of a word (default 8)")
	flags.BoolVar(&f.lsb, "lsb-first", false, "the least significant bit comes first")
	flags.StringVar(&f.cs, "cs", "", "chip select: low, high or none (default low)")
	choices(cmd, "cs", "low", "high", "none")
	flags.BoolVar(&f.threeway, "three-wire", false, "one wire for both directions")
	flags.BoolVar(&f.split, "split", false, "what is longer than the driver's buffer may be sent in pieces, the chip deselected between")
	return cmd
}

// isSegment says whether an argument is w:…, r:…, x:… or d:….
func isSegment(s string) bool {
	return len(s) > 1 && s[1] == ':' && strings.Contains("wrxd", s[:1])
}

func (f *spiFlags) request(a *app, args []string) (wire.SPITransfer, error) {
	r := wire.SPITransfer{Read: f.read, FullDuplex: f.duplex, Mode: f.mode, Bits: f.bits, LSBFirst: f.lsb,
		CS: f.cs, ThreeWire: f.threeway, Split: f.split}
	if f.speed != "" {
		hz, err := hertz(f.speed)
		if err != nil || hz > 1e9 {
			return r, usage("--speed %q is not a frequency such as 500kHz or 10MHz", f.speed)
		}
		r.SpeedHz = int(hz)
	}
	if len(args) > 0 && isSegment(args[0]) {
		if f.read > 0 || f.duplex {
			return r, usage("with w:, r: and x: there is no -n or --full-duplex: r:N and x:DATA are it")
		}
		return r, f.segments(a, &r, args)
	}
	data, err := f.form.bytes(a, args)
	if err != nil {
		return r, err
	}
	if r.Write = data; len(data) == 0 && f.read < 1 {
		return r, usage("there is nothing to transfer: DATA, or -n")
	}
	return r, nil
}

func (f *spiFlags) segments(a *app, r *wire.SPITransfer, args []string) error {
	for _, arg := range args {
		kind, data, n, err := f.form.segment(a, arg)
		switch {
		case err != nil:
			return err
		case kind == 'w':
			r.Segments = append(r.Segments, wire.SPISegment{Write: data})
		case kind == 'x':
			r.Segments = append(r.Segments, wire.SPISegment{Write: data, Read: len(data)})
		case kind == 'r':
			r.Segments = append(r.Segments, wire.SPISegment{Read: n})
		case kind == 'd' && len(r.Segments) > 0:
			r.Segments[len(r.Segments)-1].DelayUS = n
		default:
			return usage("%q is not w:DATA, r:N, x:DATA or, after one of these, d:N", arg)
		}
	}
	return nil
}
