package bussim

import (
	"encoding/binary"
	"testing"
)

// climate is what a program makes of the sensor's registers: the formulas of
// data sheet BST-BME280-DS001, appendix 4.2.3, in °C, Pa and %.
func climate(t *testing.T, s *BME280) (temperature, pressure, humidity float64) {
	t.Helper()
	read := func(reg byte, n int) []byte {
		b := make([]byte, n)
		if !s.Write([]byte{reg}) || !s.Read(b) {
			t.Fatal("not acknowledged")
		}
		return b
	}
	c := read(0x88, 24)
	u := func(i int) float64 { return float64(binary.LittleEndian.Uint16(c[i:])) }
	i := func(i int) float64 { return float64(int16(binary.LittleEndian.Uint16(c[i:]))) }
	h := read(0xe1, 7)
	h1, h2, h3 := float64(read(0xa1, 1)[0]), float64(int16(binary.LittleEndian.Uint16(h))), float64(h[2])
	h4, h5, h6 := float64(int16(h[3])<<4|int16(h[4]&0x0f)), float64(int16(h[5])<<4|int16(h[4]>>4)), float64(int8(h[6]))

	d := read(0xf7, 8)
	twenty := func(b []byte) float64 { return float64(int(b[0])<<12 | int(b[1])<<4 | int(b[2])>>4) }
	rawP, rawT, rawH := twenty(d), twenty(d[3:]), float64(binary.BigEndian.Uint16(d[6:]))

	v1 := (rawT/16384 - u(0)/1024) * i(2)
	v2 := (rawT/131072 - u(0)/8192) * (rawT/131072 - u(0)/8192) * i(4)
	fine := v1 + v2
	temperature = fine / 5120

	v1 = fine/2 - 64000
	v2 = v1*v1*i(16)/32768 + v1*i(14)*2
	v2 = v2/4 + i(12)*65536
	v1 = (i(10)*v1*v1/524288 + i(8)*v1) / 524288
	v1 = (1 + v1/32768) * u(6)
	p := (1048576 - rawP - v2/4096) * 6250 / v1
	pressure = p + (i(22)*p*p/2147483648+p*i(20)/32768+i(18))/16

	x := fine - 76800
	x = (rawH - (h4*64 + h5/16384*x)) * (h2 / 65536 * (1 + h6/67108864*x*(1+h3/67108864*x)))
	return temperature, pressure, x * (1 - h1*x/524288)
}

func TestBME280(t *testing.T) {
	s := NewBME280()
	id := make([]byte, 1)
	if !s.Write([]byte{0xd0}) || !s.Read(id) || id[0] != 0x60 {
		t.Errorf("the id is %#x", id)
	}
	asleep := make([]byte, 8)
	s.Write([]byte{0xf7})
	s.Read(asleep)
	if asleep[0] != 0x80 || asleep[3] != 0x80 || asleep[6] != 0x80 {
		t.Errorf("asleep it has measured % x", asleep)
	}
	s.Write([]byte{0xf2, 0x01, 0xf4, 0x27}) // everything once, normal mode
	seen := make(map[float64]bool)
	for range 200 {
		temperature, pressure, humidity := climate(t, s)
		seen[temperature] = true
		if temperature < 24 || temperature > 26 || pressure < 100_000 || pressure > 101_500 || humidity < 30 || humidity > 70 {
			t.Fatalf("it is %.2f °C, %.0f Pa, %.1f %%", temperature, pressure, humidity)
		}
	}
	if len(seen) < 50 {
		t.Errorf("200 measurements bring %d temperatures", len(seen))
	}

	s.Write([]byte{0xe0, 0xb6}) // reset
	s.Write([]byte{0xf4, 0x25}) // forced, humidity skipped
	mode := make([]byte, 1)
	s.Write([]byte{0xf4})
	s.Read(mode)
	d := make([]byte, 8)
	s.Write([]byte{0xf7})
	s.Read(d)
	if mode[0] != 0x24 || d[3] == 0x80 || d[6] != 0x80 || d[7] != 0 {
		t.Errorf("forced: control %#x, data % x", mode[0], d)
	}
}

// TestBME280Example is the worked example of data sheet BST-BMP280-DS001,
// section 3.12: 25.08 °C and 100653 Pa. The first measurement begins there.
func TestBME280Example(t *testing.T) {
	s := NewBME280()
	s.Write([]byte{0xf2, 0x01, 0xf4, 0x27})
	temperature, pressure, _ := climate(t, s)
	if temperature < 25.07 || temperature > 25.09 || pressure < 100_652 || pressure > 100_655 {
		t.Errorf("it is %.3f °C and %.2f Pa", temperature, pressure)
	}
}

func TestEEPROMPages(t *testing.T) {
	e := NewEEPROM()
	e.Write([]byte{0x0e, 1, 2, 3}) // the third wraps to the beginning of the page
	got := make([]byte, 3)
	e.Write([]byte{0x0e})
	e.Read(got)
	if got[0] != 1 || got[1] != 2 || got[2] != 0xff {
		t.Errorf("from 0x0e on % x", got)
	}
	e.Write([]byte{0x08})
	e.Read(got)
	if got[0] != 3 {
		t.Errorf("at 0x08 %#x", got[0])
	}
	e.Write([]byte{0xff})
	e.Read(got) // and around
	if got[0] != 0xff || e.at != 2 {
		t.Errorf("after the end it is at %d", e.at)
	}
}
