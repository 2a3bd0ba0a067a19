package bus

import (
	"slices"

	"farhand/bus/i2cdev"
	"farhand/wire"
)

// count is how many bytes besides a block a protocol takes each way, without
// addresses: for the audit.
type count struct{ out, in int }

func counts() map[string]count {
	return map[string]count{
		wire.SMBusReadByte: {0, 1}, wire.SMBusWriteByte: {1, 0},
		wire.SMBusReadByteData: {1, 1}, wire.SMBusWriteByteData: {2, 0},
		wire.SMBusReadWordData: {1, 2}, wire.SMBusWriteWordData: {3, 0},
		wire.SMBusProcessCall: {3, 2},
		wire.SMBusReadBlock:   {1, 0}, wire.SMBusWriteBlock: {2, 0},
		wire.SMBusReadI2CBlock: {1, 0}, wire.SMBusWriteI2CBlock: {1, 0},
	}
}

// smbusCall checks the arguments of I2C_SMBUS: what a protocol needs is there,
// what it has no place for isn't.
func smbusCall(a wire.I2CSMBus) (Call, error) {
	p, ok := protocols()[a.Protocol]
	if !ok {
		return Call{}, invalid("protocol", "must be one of the hint").With("hint", protocolNames())
	}
	c := Call{Protocol: a.Protocol, PEC: a.PEC, Length: a.Length}
	if a.Protocol == wire.SMBusWriteByte && a.Command == nil && a.Value != nil {
		a.Command, a.Value = a.Value, nil // the byte is the command
	}
	needsCommand := p.size != i2cdev.SizeQuick && a.Protocol != wire.SMBusReadByte
	command, err := number("command", a.Command, needsCommand, 0xff)
	if err != nil {
		return Call{}, err
	}
	most, needsValue := 0, false
	switch a.Protocol {
	case wire.SMBusQuick:
		most = 1
	case wire.SMBusWriteByteData:
		most, needsValue = 0xff, true
	case wire.SMBusWriteWordData, wire.SMBusProcessCall:
		most, needsValue = 0xffff, true
	}
	if most == 0 && a.Value != nil {
		return Call{}, invalid("value", "has no place in %s", a.Protocol)
	}
	value, err := number("value", a.Value, needsValue, most)
	if err != nil {
		return Call{}, err
	}
	c.Command, c.Value = uint8(command), uint16(value)
	if err := blockArguments(a, p, &c); err != nil {
		return Call{}, err
	}
	return c, nil
}

func blockArguments(a wire.I2CSMBus, p protocol, c *Call) error {
	writes := !p.read && (p.size == i2cdev.SizeBlockData || p.size == i2cdev.SizeI2CBlock)
	switch {
	case writes && (len(a.Data) == 0 || len(a.Data) > i2cdev.BlockMax):
		return invalid("data", "must have 1 to %d bytes, not %d", i2cdev.BlockMax, len(a.Data))
	case !writes && len(a.Data) > 0:
		return invalid("data", "has no place in %s", a.Protocol)
	case a.Length < 0 || a.Length > i2cdev.BlockMax:
		return invalid("length", "must be 1 to %d", i2cdev.BlockMax)
	case a.Length != 0 && a.Protocol != wire.SMBusReadI2CBlock:
		return invalid("length", "has no place in %s", a.Protocol)
	case a.Protocol == wire.SMBusReadI2CBlock && a.Length == 0:
		c.Length = i2cdev.BlockMax
	}
	c.Data = a.Data
	return nil
}

func number(field string, v *int, needed bool, most int) (int, error) {
	switch {
	case v == nil && needed:
		return 0, invalid(field, "is missing")
	case v == nil:
		return 0, nil
	case *v < 0 || *v > most:
		return 0, invalid(field, "must be 0 to %d", most)
	}
	return *v, nil
}

func protocolNames() []string {
	var names []string
	for name := range protocols() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Functions are what the adapter can do, in the words of wire.I2CScanned.
func (b *I2CBus) Functions() []string {
	var all []string
	if b.funcs&i2cdev.FuncI2C != 0 {
		all = append(all, "transfer")
	}
	if b.funcs&i2cdev.FuncPEC != 0 {
		all = append(all, "pec")
	}
	for _, name := range protocolNames() {
		if b.funcs&protocols()[name].need != 0 {
			all = append(all, name)
		}
	}
	return all
}
