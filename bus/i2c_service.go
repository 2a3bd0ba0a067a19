package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"farhand/bus/i2cdev"
	"farhand/bus/ioctl"
	"farhand/device"
	"farhand/device/sysfs"
	"farhand/wire"
)

// I2CService serves I2C_TRANSFER, I2C_SMBUS and I2C_SCAN. The zero value serves
// this machine.
//
// A lease is of one address, so several sessions may use chips of one bus.
// I2C_SCAN takes none.
type I2CService struct {
	FS   sysfs.FS
	Open func(node string) (ioctl.Node, error) // nil: ioctl.Open
}

var _ device.Parted = I2CService{}

// Ops are the operations.
func (I2CService) Ops() map[string]device.Effect {
	return map[string]device.Effect{
		wire.OpI2CTransfer: device.Mutating,
		wire.OpI2CSMBus:    device.Mutating,
		wire.OpI2CScan:     device.ReadOnly,
	}
}

// Parts is the address that an operation is about. RELEASE may name one.
func (I2CService) Parts(_ context.Context, _ device.Descriptor, op string, args json.RawMessage) ([]device.Part, error) {
	var a struct {
		Address *wire.I2CAddress `json:"address"`
	}
	if op != wire.OpI2CTransfer && op != wire.OpI2CSMBus && op != wire.OpRelease {
		return nil, nil
	}
	if err := decode(args, &a); err != nil {
		return nil, err
	}
	if a.Address == nil {
		if op == wire.OpRelease {
			return nil, nil
		}
		return nil, invalid("address", "is missing").With("hint", `name the chip, such as "0x76"; I2C_SCAN shows which answer`)
	}
	return []device.Part{{Key: a.Address.String()}}, nil
}

// Do runs one of them.
func (s I2CService) Do(ctx context.Context, r *device.Request) (any, error) {
	o := i2cOperation{s: s, ctx: ctx, r: r}
	switch r.Op {
	case wire.OpI2CTransfer:
		return do(r, o.transfer)
	case wire.OpI2CSMBus:
		return do(r, o.smbus)
	case wire.OpI2CScan:
		return do(r, o.scan)
	}
	return nil, unsupported(string(wire.HardwareCapability(device.I2C)), "no operation %q", device.Clean(r.Op))
}

// do decodes the arguments, runs fn and says in an error which device and
// operation it was.
func do[A, R any](r *device.Request, fn func(A) (R, error)) (any, error) {
	var a A
	err := decode(r.Args, &a)
	if err == nil {
		var result R
		if result, err = fn(a); err == nil {
			return result, nil
		}
	}
	e := wire.AsError(err)
	if e.Code == wire.InternalError { // a context's: the dispatcher puts the cause in its place
		return nil, err
	}
	return nil, e.With("device", r.Device.ID).With("op", r.Op)
}

// decode reads arguments.
func decode(args json.RawMessage, into any) error {
	if len(args) == 0 {
		return nil
	}
	if err := json.Unmarshal(args, into); err != nil {
		return device.BadArgs(err, "no valid JSON")
	}
	return nil
}

type i2cOperation struct {
	s   I2CService
	ctx context.Context
	r   *device.Request
}

// bus is the lease's opened bus, which ends with the lease.
func (o *i2cOperation) bus() (*I2CBus, error) {
	lease := o.r.Parts[0]
	if b, ok := lease.State().(*I2CBus); ok {
		return b, nil
	}
	b, err := o.s.open(o.r.Device)
	if err != nil {
		return nil, err
	}
	lease.SetState(b)
	return b, nil
}

func (s I2CService) open(d device.Descriptor) (*I2CBus, error) {
	open := s.Open
	if open == nil {
		open = ioctl.Open
	}
	return OpenI2C(d.Node, open, func(addr uint16) string { return s.owner(d, addr) })
}

// owner is the kernel driver that has an address of a bus: devices there are
// named after bus and address, 1-0068.
func (s I2CService) owner(d device.Descriptor, addr uint16) string {
	number, ok := strings.CutPrefix(filepath.Base(sysfs.Real(filepath.Join(d.SysPath, "device"))), "i2c-")
	if !ok {
		return ""
	}
	name := fmt.Sprintf("%s-%04x", number, addr)
	return device.Clean(sysfs.LinkName(filepath.Join(s.FS.Dir("bus/i2c/devices"), name), "driver"))
}

// address checks that an address may be used.
func address(a wire.I2CAddress, tenBit, force bool) (uint16, error) {
	switch {
	case tenBit, a > maxAddress:
		return 0, unsupported("i2c_ten_bit", "ten-bit addresses can't be used: the adapters of boards don't have them").
			With("hint", "seven bits, without the read/write bit: a data sheet's 0xEC is 0x76")
	case (a < firstAddress || a > lastAddress) && !force:
		return 0, invalid("address", "%s is reserved by the I2C specification", a).With("hint", "force:true uses it all the same")
	}
	return uint16(a), nil
}

func (o *i2cOperation) transfer(a wire.I2CTransfer) (wire.I2CTransferred, error) {
	out := wire.I2CTransferred{Address: a.Address, Data: wire.BusData{}}
	addr, err := address(a.Address, a.TenBit, a.Force)
	if err != nil {
		return out, err
	}
	messages, err := i2cMessages(a)
	if err != nil {
		return out, err
	}
	b, err := o.bus()
	if err != nil {
		return out, err
	}
	if err := b.Transfer(o.ctx, addr, messages); err != nil {
		return out, err
	}
	for _, m := range messages {
		if m.Read {
			out.Data = append(out.Data, m.Data...)
		} else {
			out.BytesWritten += len(m.Data)
		}
	}
	o.r.Trace.BytesOut += out.BytesWritten
	o.r.Trace.BytesIn += len(out.Data)
	return out, nil
}

// i2cMessages are the messages that a transfer asks for.
func i2cMessages(a wire.I2CTransfer) ([]i2cdev.Message, error) {
	segments, inSegments := a.Segments, true
	if len(segments) == 0 {
		inSegments = false
		if len(a.Write) > 0 {
			segments = append(segments, wire.I2CSegment{Write: a.Write})
		}
		if a.Read != 0 {
			segments = append(segments, wire.I2CSegment{Read: a.Read})
		}
	} else if len(a.Write) > 0 || a.Read != 0 {
		return nil, invalid("segments", "take the place of write and read: give either")
	}
	if len(segments) == 0 {
		return nil, invalid("write", "or read is missing").With("hint", "to see whether a chip is there use I2C_SMBUS with protocol quick, or I2C_SCAN")
	}
	if len(segments) > MaxI2CSegments {
		return nil, invalid("segments", "may be at most %d, not %d", MaxI2CSegments, len(segments))
	}
	var messages []i2cdev.Message
	for i, g := range segments {
		field := "read"
		if inSegments {
			field = fmt.Sprintf("segments[%d]", i)
		}
		switch n := max(len(g.Write), g.Read); {
		case g.Read < 0:
			return nil, invalid(field, "can't read %d bytes", g.Read)
		case (len(g.Write) > 0) == (g.Read > 0):
			return nil, invalid(field, "must either write or read")
		case n > MaxI2CMessage:
			return nil, invalid(field, "may have at most %d bytes, not %d: the kernel takes no longer message", MaxI2CMessage, n)
		case g.Read > 0:
			messages = append(messages, i2cdev.Message{Read: true, Data: make([]byte, g.Read)})
		default:
			messages = append(messages, i2cdev.Message{Data: g.Write})
		}
	}
	return messages, nil
}

func (o *i2cOperation) smbus(a wire.I2CSMBus) (wire.I2CSMBusResult, error) {
	a.Protocol = strings.ReplaceAll(strings.ToLower(a.Protocol), "-", "_")
	out := wire.I2CSMBusResult{Address: a.Address, Protocol: a.Protocol}
	addr, err := address(a.Address, false, a.Force)
	if err != nil {
		return out, err
	}
	call, err := smbusCall(a)
	if err != nil {
		return out, err
	}
	b, err := o.bus()
	if err != nil {
		return out, err
	}
	answer, err := b.SMBus(o.ctx, addr, call)
	if err != nil {
		return out, err
	}
	c := counts()[a.Protocol]
	o.r.Trace.BytesOut += c.out + len(call.Data)
	o.r.Trace.BytesIn += c.in + len(answer.Data)
	switch {
	case c.in > 0:
		value := int(answer.Value)
		out.Value = &value
	case answer.Data != nil:
		out.Data = answer.Data
	}
	return out, nil
}

func (o *i2cOperation) scan(a wire.I2CScan) (wire.I2CScanned, error) {
	out := wire.I2CScanned{First: firstAddress, Last: lastAddress, Method: a.Method}
	if a.First != nil {
		out.First = *a.First
	}
	if a.Last != nil {
		out.Last = *a.Last
	}
	if out.First < firstAddress || out.Last > lastAddress || out.First > out.Last {
		return out, invalid("first", "and last must be from 0x%02x to 0x%02x, in this order", firstAddress, lastAddress)
	}
	switch a.Method {
	case "":
		out.Method = wire.I2CScanAuto
	case wire.I2CScanAuto, wire.I2CScanQuick, wire.I2CScanRead:
	default:
		return out, invalid("method", "must be auto, quick or read")
	}
	b, err := o.s.open(o.r.Device)
	if err != nil {
		return out, err
	}
	defer b.Close() // nothing was written to it that could be lost
	out.Functions = b.Functions()
	out.Addresses, err = b.Scan(o.ctx, uint16(out.First), uint16(out.Last), out.Method)
	return out, err
}
