package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

// smbusProtocols are the protocols with what each takes: c a command, v a value,
// d data.
var smbusProtocols = []struct{ name, takes string }{
	{wire.SMBusQuick, ""}, {wire.SMBusReadByte, ""}, {wire.SMBusWriteByte, "v"},
	{wire.SMBusReadByteData, "c"}, {wire.SMBusWriteByteData, "cv"}, {wire.SMBusReadWordData, "c"}, {wire.SMBusWriteWordData, "cv"},
	{wire.SMBusProcessCall, "cv"}, {wire.SMBusReadBlock, "c"}, {wire.SMBusWriteBlock, "cd"},
	{wire.SMBusReadI2CBlock, "c"}, {wire.SMBusWriteI2CBlock, "cd"},
}

func (a *app) i2cSMBus() *cobra.Command {
	var (
		f   chipFlags
		n   int
		pec bool
	)
	all := make([]string, len(smbusProtocols))
	for i, p := range smbusProtocols {
		all[i] = p.name
	}
	cmd := &cobra.Command{
		Use:   "smbus [MACHINE] [DEVICE] ADDRESS PROTOCOL [COMMAND] [VALUE|DATA...]",
		Short: "Do one SMBus transaction",
		Long: `smbus does one SMBus transaction, for adapters that do no other and chips that want it.
PROTOCOL is one of ` + strings.Join(all[:5], ", ") + `,
` + strings.Join(all[5:10], ", ") + `,
` + strings.Join(all[10:], ", ") + `. COMMAND and
VALUE are numbers, 0x for hexadecimal; DATA is bytes in hexadecimal.`,
		Example: "  farhand i2c smbus pi i2c:1 0x48 read_word_data 0x00\n  farhand i2c smbus pi i2c:1 0x48 write_byte_data 0x01 0x60",
		Args:    between(2, 64, "[MACHINE] [DEVICE] ADDRESS PROTOCOL [COMMAND] [VALUE|DATA...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, address, err := chipWords(args)
			if err != nil {
				return err
			}
			request := wire.I2CSMBus{Address: address, Force: f.force, PEC: pec, Length: n}
			if err := smbusArgs(&request, w.rest); err != nil {
				return err
			}
			return a.onDevice(cmd, "i2c", w, f.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.I2CSMBus(ctx, at.device, request, at.hold)
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(got)
				case got.Value != nil:
					a.printf("0x%02x\n", *got.Value)
				case len(got.Data) > 0:
					return a.printBytes(got.Data, f.form)
				}
				return nil
			})
		},
		ValidArgsFunction: a.completeDevice("i2c"),
	}
	f.add(cmd)
	f.form.addOut(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 0, "how many bytes read_i2c_block reads (default 32)")
	cmd.Flags().BoolVar(&pec, "pec", false, "with a checksum (packet error code)")
	return cmd
}

// smbusArgs reads PROTOCOL and what it takes.
func smbusArgs(r *wire.I2CSMBus, args []string) error {
	if len(args) == 0 {
		return usage("name a PROTOCOL, such as read_byte_data")
	}
	i := slices.IndexFunc(smbusProtocols, func(p struct{ name, takes string }) bool { return p.name == args[0] })
	if i < 0 {
		return usage("there is no protocol %q; see farhand i2c smbus --help", args[0])
	}
	r.Protocol, args = args[0], args[1:]
	takes := smbusProtocols[i].takes
	number := func(s string) (*int, error) {
		n, err := strconv.ParseUint(s, 0, 16)
		if err != nil {
			return nil, usage("%q is no number from 0 to 65535", s)
		}
		v := int(n)
		return &v, nil
	}
	for _, one := range takes {
		if len(args) == 0 {
			return usage("%s takes %s", r.Protocol, smbusTakes(takes))
		}
		var err error
		switch one {
		case 'c':
			r.Command, err = number(args[0])
		case 'v':
			r.Value, err = number(args[0])
		case 'd':
			r.Data, err = hexBytes(args...)
			args = args[:1]
		}
		if err != nil {
			return err
		}
		args = args[1:]
	}
	if len(args) > 0 {
		return usage("%s takes %s", r.Protocol, smbusTakes(takes))
	}
	return nil
}

func smbusTakes(takes string) string {
	names := map[rune]string{'c': "COMMAND", 'v': "VALUE", 'd': "DATA"}
	var list []string
	for _, one := range takes {
		list = append(list, names[one])
	}
	if list == nil {
		return "nothing more"
	}
	return fmt.Sprintf("%s after it", strings.Join(list, " and "))
}
