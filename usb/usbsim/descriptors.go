package usbsim

import "encoding/binary"

// descriptors are what the device says of itself (USB 2.0, 9.6).
func (m Model) descriptors() []byte {
	return append(m.deviceDescriptor(), m.configuration()...)
}

func (m Model) deviceDescriptor() []byte {
	d := []byte{18, 1, 0x00, 0x02, 0, 0, 0, 64, 0, 0, 0, 0, 0x00, 0x01, 1, 2, 3, 1}
	binary.LittleEndian.PutUint16(d[8:], m.VID)
	binary.LittleEndian.PutUint16(d[10:], m.PID)
	if len(m.Interfaces) > 1 { // functions are associated: the composite class
		d[4], d[5], d[6] = 0xef, 2, 1
	}
	return d
}

func (m Model) configuration() []byte {
	c := []byte{9, 2, 0, 0, 0, configurationValue, 0, 0x80, 50}
	numbers := make(map[byte]bool)
	for i, f := range m.Interfaces {
		if !numbers[f.Number] {
			numbers[f.Number] = true
			c = append(c, m.association(i)...)
		}
		c = append(c, 9, 4, f.Number, f.Alternate, byte(len(f.Endpoints)), f.Class, f.SubClass, f.Protocol, 0)
		if f.HIDReport > 0 {
			c = append(c, 9, 0x21, 0x11, 0x01, 0, 1, 0x22, byte(f.HIDReport), byte(f.HIDReport>>8))
		}
		for _, e := range f.Endpoints {
			kind, interval := byte(2), byte(0)
			if e.Interrupt {
				kind, interval = 3, 4
			}
			c = append(c, 7, 5, e.Address, kind, byte(e.MaxPacket), byte(e.MaxPacket>>8), interval)
		}
	}
	c[4] = byte(len(numbers))
	binary.LittleEndian.PutUint16(c[2:], uint16(len(c)))
	return c
}

// association is the descriptor that stands before interfaces of one driver.
func (m Model) association(first int) []byte {
	f := m.Interfaces[first]
	if f.Driver == "" || first > 0 && m.Interfaces[first-1].Driver == f.Driver {
		return nil
	}
	n := 0
	for _, other := range m.Interfaces[first:] {
		if other.Driver != f.Driver {
			break
		}
		n++
	}
	if n < 2 {
		return nil
	}
	return []byte{8, 11, f.Number, byte(n), f.Class, f.SubClass, f.Protocol, 0}
}
