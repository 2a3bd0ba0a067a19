package gpio

import (
	"os"

	"farhand/gpio/uapi"
)

// Open opens a chip by its node, such as /dev/gpiochip0.
func Open(node string) (Chip, error) {
	f, err := uapi.Open(node)
	if err != nil {
		return nil, err
	}
	return charDevice{f}, nil
}

// Adopt makes a Request of a file that was one in an earlier process. It takes
// the file, also when it fails.
func Adopt(f *os.File) (Request, error) {
	l, err := uapi.FromFile(f)
	if err != nil {
		return nil, err
	}
	return &request{Lines: l}, nil
}

// charDevice is a Chip on the kernel's character device.
type charDevice struct{ f *uapi.ChipFile }

func (c charDevice) Close() error { return c.f.Close() }

func (c charDevice) Info() (ChipInfo, error) {
	i, err := c.f.Info()
	return ChipInfo{Name: i.Name, Label: i.Label, Lines: i.Lines}, err
}

func (c charDevice) Line(offset int) (LineInfo, error) {
	i, err := c.f.Line(uint32(offset))
	if err != nil {
		return LineInfo{}, err
	}
	return LineInfo{
		LineConfig: decode(i), Name: i.Name, Consumer: i.Consumer, Used: i.Flags&uapi.Used != 0,
	}, nil
}

func (c charDevice) Request(lines []LineConfig, o Options) (Request, error) {
	config, err := encode(lines)
	if err != nil {
		return nil, err
	}
	offsets := make([]uint32, len(lines))
	for i, l := range lines {
		offsets[i] = uint32(l.Offset)
	}
	l, err := c.f.Request(uapi.Request{Offsets: offsets, Consumer: o.Consumer, Config: config, EventBuffer: o.EventBuffer})
	if err != nil {
		return nil, err
	}
	return &request{Lines: l}, nil
}

// request is a Request on the kernel's character device.
type request struct{ *uapi.Lines }

var _ Keeper = (*request)(nil)

func (r *request) Configure(lines []LineConfig) error {
	config, err := encode(lines)
	if err != nil {
		return err
	}
	return r.SetConfig(config)
}

func (r *request) Read(to []Event) (int, error) {
	raw := make([]uapi.Event, len(to))
	n, err := r.ReadEvents(raw)
	for i, e := range raw[:max(0, n)] {
		to[i] = Event{Offset: int(e.Offset), Rising: e.ID == uapi.RisingEdge, TimestampNS: e.TimestampNS, Seq: e.Seq, LineSeq: e.LineSeq}
	}
	return max(0, n), err
}
