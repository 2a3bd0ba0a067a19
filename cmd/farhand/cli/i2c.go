package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) i2c() *cobra.Command {
	g := group("i2c", "Talk to chips on I2C buses of a machine",
		a.i2cScan(), a.i2cRead(), a.i2cWrite(), a.i2cTransfer(), a.i2cSMBus())
	g.Long = `i2c works on the chips of an I2C bus: DEVICE is the bus, i2c:1 for /dev/i2c-1, and may
be left out where there is one. ADDRESS is a chip's 7-bit address, 0x76; a data sheet
that says 0xEC/0xED means 0x76. Others may use other chips of the bus meanwhile.

` + byteHelp
	g.Example = `  farhand i2c scan pi i2c:1
  farhand i2c read pi i2c:1 0x76 0xd0
  farhand i2c write pi i2c:1 0x76 0xf4 0x27
  farhand i2c transfer pi i2c:1 0x50 w:0000 r:16`
	return g
}

// isAddress says whether an argument can be nothing but an address, so that the
// machine and the bus before it may be left out. Without 0x it could be a bus.
func isAddress(s string) bool {
	_, err := wire.ParseI2CAddress(s)
	return err == nil && strings.HasPrefix(strings.ToLower(s), "0x")
}

// chipWords splits the arguments of a verb that works on one chip.
func chipWords(args []string) (words, wire.I2CAddress, error) {
	w := split("i2c", args, 0, isAddress)
	if len(w.rest) > 1 && w.device == "" && !isAddress(w.rest[0]) && isAddress(w.rest[1]) {
		w.device, w.rest = deviceName("i2c", w.rest[0]), w.rest[1:]
	}
	if len(w.rest) == 0 {
		return w, 0, usage("name the chip by its ADDRESS, such as 0x76")
	}
	if !isAddress(w.rest[0]) {
		return w, 0, usage("%q is no ADDRESS in hexadecimal, such as 0x76", w.rest[0])
	}
	address, err := wire.ParseI2CAddress(w.rest[0])
	w.rest = w.rest[1:]
	return w, address, err
}

// chipFlags are those that every verb on a chip has.
type chipFlags struct {
	hold, force bool
	form        byteForm
}

func (f *chipFlags) add(cmd *cobra.Command) {
	addHold(cmd, &f.hold)
	cmd.Flags().BoolVar(&f.force, "force", false, "allow the addresses that the I2C specification reserves")
}

func (a *app) i2cRead() *cobra.Command {
	var (
		f chipFlags
		n int
	)
	cmd := &cobra.Command{
		Use:   "read [MACHINE] [DEVICE] ADDRESS [REGISTER...]",
		Short: "Read from a chip, from a register if one is named",
		Long: `read reads bytes from a chip. With a REGISTER, one or more bytes in hexadecimal, that
is written before, and what follows is read after a repeated start.`,
		Example: `  farhand i2c read pi i2c:1 0x76 0xd0
  farhand i2c read pi i2c:1 0x50 00 10 -n 32 --raw > part.bin`,
		Args: between(1, 1024, "[MACHINE] [DEVICE] ADDRESS [REGISTER...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, address, err := chipWords(args)
			if err != nil {
				return err
			}
			for i, word := range w.rest {
				// After a register a person may well mean a length by it.
				if i > 0 && len(word) == 1 {
					return usage("is %q another byte of the register, or how many are to be read? Write 0x0%s, or -n %s", word, word, word)
				}
			}
			register, err := hexBytes(w.rest...)
			if err != nil {
				return err
			}
			if n < 1 {
				return usage("-n must be 1 or more")
			}
			return a.i2cDo(cmd, w, f, wire.I2CTransfer{Address: address, Write: register, Read: n})
		},
		ValidArgsFunction: a.completeDevice("i2c"),
	}
	f.add(cmd)
	f.form.addOut(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 1, "how many bytes")
	return cmd
}

func (a *app) i2cWrite() *cobra.Command {
	var f chipFlags
	cmd := &cobra.Command{
		Use:     "write [MACHINE] [DEVICE] ADDRESS DATA...",
		Short:   "Write to a chip, a register and its value for example",
		Long:    byteHelp,
		Example: "  farhand i2c write pi i2c:1 0x76 0xf4 0x27",
		Args:    between(2, 1024, "[MACHINE] [DEVICE] ADDRESS DATA..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, address, err := chipWords(args)
			if err != nil {
				return err
			}
			data, err := f.form.bytes(a, w.rest)
			if err != nil {
				return err
			}
			if len(data) == 0 {
				return usage("there is no DATA to write")
			}
			return a.i2cDo(cmd, w, f, wire.I2CTransfer{Address: address, Write: data})
		},
		ValidArgsFunction: a.completeDevice("i2c"),
	}
	f.add(cmd)
	f.form.addIn(cmd)
	return cmd
}

func (a *app) i2cTransfer() *cobra.Command {
	var f chipFlags
	cmd := &cobra.Command{
		Use:   "transfer [MACHINE] [DEVICE] ADDRESS SEGMENT...",
		Short: "Write and read in one transaction",
		Long: `transfer does one transaction, which nothing else on the bus comes between. A SEGMENT
is w:DATA, bytes to be written, or r:N, so many to be read; between two of them is a
repeated start.

` + byteHelp,
		Example: `  farhand i2c transfer pi i2c:1 0x50 w:0000 r:16
  farhand i2c transfer pi i2c:1 0x40 w:e7 r:2 w:e5 r:2 --hex`,
		Args: between(2, 64, "[MACHINE] [DEVICE] ADDRESS SEGMENT..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, address, err := chipWords(args)
			if err != nil {
				return err
			}
			request := wire.I2CTransfer{Address: address}
			for _, arg := range w.rest {
				kind, data, n, err := f.form.segment(a, arg)
				switch {
				case err != nil:
					return err
				case kind == 'w':
					request.Segments = append(request.Segments, wire.I2CSegment{Write: data})
				case kind == 'r':
					request.Segments = append(request.Segments, wire.I2CSegment{Read: n})
				default:
					return usage("%q is no SEGMENT: w:DATA or r:N", arg)
				}
			}
			if len(request.Segments) == 0 {
				return usage("there are no SEGMENTs, such as w:d0 r:1")
			}
			return a.i2cDo(cmd, w, f, request)
		},
		ValidArgsFunction: a.completeDevice("i2c"),
	}
	f.add(cmd)
	f.form.addIn(cmd)
	f.form.addOut(cmd)
	return cmd
}

// segment reads w:DATA, x:DATA, r:N and d:N; kind is 0 for anything else.
func (f byteForm) segment(a *app, arg string) (kind byte, data []byte, n int, err error) {
	key, value, ok := strings.Cut(arg, ":")
	if !ok || len(key) != 1 {
		return 0, nil, 0, nil
	}
	switch key[0] {
	case 'w', 'x':
		if data, err = f.bytes(a, []string{value}); err == nil && len(data) == 0 {
			err = usage("%q has no DATA", arg)
		}
	case 'r', 'd':
		if n, err = strconv.Atoi(value); err != nil || n < 1 {
			err = usage("%q needs a number above 0", arg)
		}
	default:
		return 0, nil, 0, nil
	}
	return key[0], data, n, err
}

func (a *app) i2cDo(cmd *cobra.Command, w words, f chipFlags, request wire.I2CTransfer) error {
	request.Force = f.force
	return a.onDevice(cmd, "i2c", w, f.hold, func(ctx context.Context, at spot) error {
		got, err := at.session.I2CTransfer(ctx, at.device, request, at.hold)
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(got)
		case len(got.Data) == 0:
			return nil
		}
		return a.printBytes(got.Data, f.form)
	})
}
