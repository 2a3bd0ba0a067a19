package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) serial() *cobra.Command {
	g := group("serial", "Talk to serial ports of a machine",
		a.serialList(), a.serialWrite(), a.serialRead(), a.serialTransact(), a.serialControl(), a.serialRelease())
	g.Long = `serial reads and writes serial ports. DEVICE is an id as farhand devices shows it,
or an unambiguous other name of it, such as /dev/ttyUSB0.

In DATA and --until these stand for bytes: \n \r \t \0 \\ and \xHH; --raw takes
every character as it is, --hex takes pairs of hexadecimal digits.

A port is set to 115200 8N1 unless flags say otherwise. It is taken for the
operation alone; --hold keeps it for this login, as it is set, until serial release
or some idle minutes.`
	g.Example = `  farhand serial list pi
  farhand serial transact pi serial:usb-2341:0043-95530 '*IDN?\n' --until '\n'
  farhand serial read pi /dev/ttyUSB0 --baud 9600 --timeout 5s
  farhand serial control pi /dev/ttyUSB0 --dtr off`
	return g
}

func (a *app) serialList() *cobra.Command {
	return &cobra.Command{
		Use:   "list [MACHINE]",
		Short: "List the serial ports of a machine",
		Args:  between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listDevices(cmd, args, "serial")
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

// port is the port that a serial verb works on.
type port struct {
	session *client.Session
	device  string
	hold    client.Hold
}

// withPort opens a session on the machine and runs do there. args are [MACHINE]
// DEVICE; hold is the flag.
func (a *app) withPort(cmd *cobra.Command, args []string, hold bool, do func(context.Context, port) error) error {
	machine, device := "", args[len(args)-1]
	if len(args) == 2 {
		machine = args[0]
	}
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if machine, err = a.machine(ctx, c, machine); err != nil {
		return err
	}
	s, err := c.Open(ctx, client.Place{Machine: machine})
	if err != nil {
		return err
	}
	return do(ctx, port{s, device, client.Hold(hold)})
}

// modeFlags are the flags that set a port.
type modeFlags struct {
	baud, bytesize          int
	parity                  string
	stopbits                float64
	rtscts, xonxoff, dsrdtr bool
	timeout                 string
	hold                    bool
	cmd                     *cobra.Command
}

func (f *modeFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.IntVarP(&f.baud, "baud", "b", 115200, "bits a second, any rate that the port can do")
	flags.IntVar(&f.bytesize, "bytesize", 8, "data bits, 5 to 8")
	flags.StringVar(&f.parity, "parity", "none", "none, even, odd, mark or space")
	flags.Float64Var(&f.stopbits, "stopbits", 1, "1, 1.5 or 2")
	flags.BoolVar(&f.rtscts, "rtscts", false, "flow control by RTS and CTS")
	flags.BoolVar(&f.xonxoff, "xonxoff", false, "flow control by XON and XOFF")
	flags.BoolVar(&f.dsrdtr, "dsrdtr", false, "flow control by DSR and DTR")
	flags.BoolVar(&f.hold, "hold", false, "keep the port after this until serial release")
}

// mode is what was asked for: a flag that was not given leaves the port as it is held.
func (f *modeFlags) mode() *wire.SerialMode {
	var m wire.SerialMode
	any := false
	given := func(name string) bool {
		ok := f.cmd.Flags().Changed(name)
		any = any || ok
		return ok
	}
	if given("baud") {
		m.Baudrate = &f.baud
	}
	if given("bytesize") {
		m.Bytesize = &f.bytesize
	}
	if given("parity") {
		m.Parity = &f.parity
	}
	if given("stopbits") {
		m.Stopbits = &f.stopbits
	}
	if given("rtscts") {
		m.RTSCTS = &f.rtscts
	}
	if given("xonxoff") {
		m.XONXOFF = &f.xonxoff
	}
	if given("dsrdtr") {
		m.DSRDTR = &f.dsrdtr
	}
	if !any {
		return nil
	}
	return &m
}

func (f *modeFlags) addTimeout(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.timeout, "timeout", "", what)
}

// seconds is --timeout as the wire has it.
func (f *modeFlags) seconds() (*float64, error) {
	if f.timeout == "" {
		return nil, nil
	}
	d, err := duration(f.timeout)
	if err != nil || d < 0 {
		return nil, usage("--timeout %q is not a duration such as 500ms or 5s", f.timeout)
	}
	s := d.Seconds()
	return &s, nil
}
