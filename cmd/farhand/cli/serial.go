package cli

import (
	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serial() *cobra.Command {
	g := group("serial", "Talk to serial ports of a machine",
		a.serialList(), a.serialWrite(), a.serialRead(), a.serialTransact(), a.serialWatch(), a.serialExpect(), a.serialControl(), a.serialRelease())
	g.Long = `serial reads and writes serial ports. DEVICE is an id as farhand devices shows it,
or an unambiguous other name of it, such as /dev/ttyUSB0. It may be left out where
the machine has one serial port.

In DATA and --until these stand for bytes: \n \r \t \0 \\ and \xHH; --raw takes
every character as it is, --hex takes pairs of hexadecimal digits.

A port is set to 115200 8N1 unless flags say otherwise. It is taken for the
operation alone; --hold keeps it for this login, as it is set, until farhand release
or some idle minutes.`
	g.Example = `  farhand serial list pi
  farhand serial transact pi serial:usb-2341:0043-95530 '*IDN?\n' --until '\n'
  farhand serial read pi /dev/ttyUSB0 --baud 9600 --timeout 5s
  farhand serial watch pi /dev/ttyUSB0 --from 0
  farhand serial expect pi /dev/ttyUSB0 'send:\n' 'expect:login: ' 'send:pi\n' 're:\$ $'
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

// modeFlags are the flags that set a port.
type modeFlags struct {
	baud, bytesize          int
	parity                  string
	stopbits                float64
	rtscts, xonxoff, dsrdtr bool
	latency                 bool
	rs485, reset            string
	timeout                 string
	hold                    bool
	cmd                     *cobra.Command
}

// add adds them, and --hold.
func (f *modeFlags) add(cmd *cobra.Command) {
	f.addMode(cmd)
	addHold(cmd, &f.hold)
}

func (f *modeFlags) addMode(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.IntVarP(&f.baud, "baud", "b", 115200, "bits a second, any rate that the port can do")
	flags.IntVar(&f.bytesize, "bytesize", 8, "data bits, 5 to 8")
	flags.StringVar(&f.parity, "parity", "none", "none, even, odd, mark or space")
	choices(cmd, "parity", "none", "even", "odd", "mark", "space")
	f.stopbits = 1
	flags.Var((*decimal)(&f.stopbits), "stopbits", "1, 1.5 or 2")
	flags.BoolVar(&f.rtscts, "rtscts", false, "flow control by RTS and CTS")
	flags.BoolVar(&f.xonxoff, "xonxoff", false, "flow control by XON and XOFF")
	flags.BoolVar(&f.dsrdtr, "dsrdtr", false, "flow control by DSR and DTR")
	flags.StringVar(&f.rs485, "rs485", "", "on: switch an RS-485 transceiver with RTS; off: don't")
	choices(cmd, "rs485", "on", "off")
	flags.BoolVar(&f.latency, "low-latency", false, "have the driver hand on every byte at once")
	flags.StringVar(&f.reset, "reset-on-open", "", "on: reset the board by DTR and RTS when this opens the port; off: lower both at once (default: leave them up)")
	choices(cmd, "reset-on-open", "on", "off")
}

// mode is what was asked for: a flag that was not given leaves the port as it is held.
func (f *modeFlags) mode() (*wire.SerialMode, error) {
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
	if given("low-latency") {
		m.LowLatency = &f.latency
	}
	var err error
	if m.ResetOnOpen, err = onOff("reset-on-open", f.reset); err != nil {
		return nil, err
	}
	rs485, err := onOff("rs485", f.rs485)
	if err != nil {
		return nil, err
	}
	if rs485 != nil {
		m.RS485 = &wire.SerialRS485{Enabled: rs485}
	}
	if !any && m.ResetOnOpen == nil && m.RS485 == nil {
		return nil, nil
	}
	return &m, nil
}

func (f *modeFlags) addTimeout(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.timeout, "timeout", "", what)
}

// seconds is --timeout as the wire has it.
func (f *modeFlags) seconds() (*float64, error) { return seconds("timeout", f.timeout) }

// tellOpened says what opening the port may have done to the board, and what on
// the machine may get in the way.
func (a *app) tellOpened(o *wire.SerialOpened) {
	if o == nil {
		return
	}
	if o.Note != "" && (o.Reset == "done" || o.Reset == "possible") {
		a.note("%s", clean(o.Note))
	}
	for _, w := range o.Warnings {
		a.note("Warning: %s", clean(w))
	}
}
