package screen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image/color"
	"io"
)

// format is how a framebuffer keeps its pixels (struct fb_var_screeninfo and
// fb_fix_screeninfo of linux/fb.h).
type format struct {
	width, height int   // of what is visible, in pixels
	x, y          int   // where the visible part begins, in pixels
	stride        int   // bytes from one row to the next
	bits          int   // of a pixel: 16, 24 or 32
	red           field // where each colour is within a pixel
	green         field
	blue          field
	alpha         field
	length        int // bytes there are
}

// field is a part of a pixel, in bits from the lowest.
type field struct {
	offset, length int
}

// The largest display that is drawn to: twice 8K in each direction is nothing
// that a board has, but an answer that makes no sense.
const largestSide = 16384

var errFormat = errors.New("a kind of framebuffer that isn't supported")

func (f format) check() error {
	bytes := f.bits / 8
	switch {
	case f.bits != 16 && f.bits != 24 && f.bits != 32,
		f.width < 1 || f.height < 1 || f.width > largestSide || f.height > largestSide,
		f.x < 0 || f.y < 0 || f.stride < (f.x+f.width)*bytes,
		f.length < (f.y+f.height-1)*f.stride+(f.x+f.width)*bytes:
		return fmt.Errorf("%w: %dx%d at %d,%d, %d bits, rows of %d bytes, %d bytes in all",
			errFormat, f.width, f.height, f.x, f.y, f.bits, f.stride, f.length)
	}
	for _, c := range []field{f.red, f.green, f.blue, f.alpha} {
		if c.offset < 0 || c.length < 0 || c.length > 16 || c.offset+c.length > f.bits {
			return fmt.Errorf("%w: %d bits of a colour from bit %d of %d", errFormat, c.length, c.offset, f.bits)
		}
	}
	if f.red.length == 0 || f.green.length == 0 || f.blue.length == 0 {
		return fmt.Errorf("%w: without one of the colours", errFormat)
	}
	return nil
}

// pixel is a colour as the framebuffer has it.
func (f format) pixel(c color.Color) uint32 {
	r, g, b, a := c.RGBA() // 16 bits each
	put := func(v uint32, to field) uint32 { return v >> (16 - to.length) << to.offset }
	return put(r, f.red) | put(g, f.green) | put(b, f.blue) | put(a, f.alpha)
}

// rowsAtOnce is how many rows go out in one write.
const rowsAtOnce = 16

// write puts c where it is seen.
func (f format) write(w io.WriterAt, c canvas) error {
	bytes := f.bits / 8
	var pixels [256][4]byte
	for i, colour := range c.Palette {
		binary.LittleEndian.PutUint32(pixels[i][:], f.pixel(colour))
	}
	buf := make([]byte, 0, f.stride*rowsAtOnce)
	for y := 0; y < f.height; {
		start := int64(f.y+y)*int64(f.stride) + int64(f.x*bytes)
		buf = buf[:0]
		for range rowsAtOnce {
			for _, index := range c.Pix[c.PixOffset(0, y):c.PixOffset(f.width, y)] {
				buf = append(buf, pixels[index][:bytes]...)
			}
			y++
			// What lies beyond the visible part of a row belongs to nobody.
			if pad := f.stride - f.width*bytes; pad > 0 || y == f.height {
				break
			}
		}
		if _, err := w.WriteAt(buf, start); err != nil {
			return fmt.Errorf("write a framebuffer's rows up to %d: %w", y, err)
		}
	}
	return nil
}
