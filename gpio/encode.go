package gpio

import (
	"time"

	"farhand/gpio/uapi"
	"farhand/wire"
)

var (
	directionFlags = map[Direction]uapi.Flags{In: uapi.Input, Out: uapi.Output}
	pullFlags      = map[Pull]uapi.Flags{PullUp: uapi.PullUp, PullDown: uapi.PullDown, PullNone: uapi.BiasDisabled}
	driveFlags     = map[Drive]uapi.Flags{OpenDrain: uapi.OpenDrain, OpenSource: uapi.OpenSource}
)

func (c LineConfig) flags() uapi.Flags {
	f := directionFlags[c.Direction] | pullFlags[c.Pull] | driveFlags[c.Drive]
	if c.ActiveLow {
		f |= uapi.ActiveLow
	}
	if c.Edges&Rising != 0 {
		f |= uapi.EdgeRising
	}
	if c.Edges&Falling != 0 {
		f |= uapi.EdgeFalling
	}
	return f
}

// encode brings lines into the kernel's form: the flags of the first line for
// all, an attribute for each group of lines that has others, one for the
// outputs' levels, and one for each debounce period.
func encode(lines []LineConfig) (uapi.Config, error) {
	var c uapi.Config
	var values, outputs uint64
	add := func(id uint32, value, bit uint64) {
		for i := range c.Attrs {
			if a := &c.Attrs[i]; a.ID == id && a.Value == value {
				a.Mask |= bit
				return
			}
		}
		c.Attrs = append(c.Attrs, uapi.Attr{ID: id, Value: value, Mask: bit})
	}
	for i, l := range lines {
		if err := l.Validate(); err != nil {
			return c, err
		}
		bit := uint64(1) << i
		if f := l.flags(); i == 0 {
			c.Flags = f
		} else if f != c.Flags {
			add(uapi.AttrFlags, uint64(f), bit)
		}
		if l.Direction == Out {
			outputs |= bit
			values |= uint64(l.Value) << i
		}
		if l.Debounce > 0 {
			add(uapi.AttrDebounce, uint64(max(1, l.Debounce/time.Microsecond)), bit)
		}
	}
	if outputs != 0 {
		c.Attrs = append(c.Attrs, uapi.Attr{ID: uapi.AttrValues, Value: values, Mask: outputs})
	}
	if len(c.Attrs) > uapi.MaxAttrs {
		return c, wire.Errorf(wire.InvalidArgument, "these lines are set in too many different ways for one request of the kernel, which knows %d", uapi.MaxAttrs).
			With("hint", "configure them in several operations")
	}
	return c, nil
}

// decode is the reverse, for one line.
func decode(i uapi.LineInfo) LineConfig {
	c := LineConfig{Offset: int(i.Offset), Direction: In, ActiveLow: i.Flags&uapi.ActiveLow != 0, Debounce: time.Duration(i.DebounceUS) * time.Microsecond}
	if i.Flags&uapi.Output != 0 {
		c.Direction = Out
	}
	for p, f := range pullFlags {
		if i.Flags&f != 0 {
			c.Pull = p
		}
	}
	for d, f := range driveFlags {
		if i.Flags&f != 0 {
			c.Drive = d
		}
	}
	if i.Flags&uapi.EdgeRising != 0 {
		c.Edges |= Rising
	}
	if i.Flags&uapi.EdgeFalling != 0 {
		c.Edges |= Falling
	}
	return c
}
