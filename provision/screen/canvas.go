package screen

import (
	"image"
	"image/color"
	"math"

	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/font/inconsolata"
)

// A canvas has one byte a pixel: a display of 1920x1080 takes 2 MiB while it is
// drawn, of a machine that may have 512.
type canvas struct {
	*image.Paletted
}

// ramp is a row of the palette, from the background to a colour in as many steps
// as soft edges of letters need.
type ramp uint8

const rampSteps = 16

const (
	inkRamp ramp = iota
	accentRamp
	dimRamp
	goodRamp
	badRamp
	ramps
)

// The palette's last two entries are the QR code's own, whatever the background:
// decoders expect dark on light.
const (
	moduleDark  = uint8(ramps * rampSteps)
	moduleLight = moduleDark + 1
)

// colours is what a theme gives to each ramp.
type colours struct {
	paper color.RGBA
	inks  [ramps]color.RGBA
}

// A display is dark, so that the code stands out on it and nothing burns in; a
// picture that is looked at in a window, or printed, is light.
func dark() colours {
	return colours{
		paper: color.RGBA{0x0d, 0x14, 0x1f, 0xff},
		inks: [ramps]color.RGBA{
			inkRamp:    {0xf2, 0xf4, 0xf7, 0xff},
			accentRamp: {0x7f, 0xd4, 0xff, 0xff},
			dimRamp:    {0xa5, 0xb0, 0xbf, 0xff},
			goodRamp:   {0x8c, 0xe0, 0x8c, 0xff},
			badRamp:    {0xff, 0xb8, 0x6b, 0xff},
		},
	}
}

func light() colours {
	return colours{
		paper: color.RGBA{0xff, 0xff, 0xff, 0xff},
		inks: [ramps]color.RGBA{
			inkRamp:    {0x14, 0x18, 0x20, 0xff},
			accentRamp: {0x00, 0x4f, 0x80, 0xff},
			dimRamp:    {0x5a, 0x63, 0x70, 0xff},
			goodRamp:   {0x1e, 0x6b, 0x1e, 0xff},
			badRamp:    {0x9c, 0x4a, 0x00, 0xff},
		},
	}
}

func (c colours) palette() color.Palette {
	p := make(color.Palette, 0, int(moduleLight)+1)
	for _, ink := range c.inks {
		for step := range rampSteps {
			p = append(p, color.RGBA{
				mix(c.paper.R, ink.R, step), mix(c.paper.G, ink.G, step), mix(c.paper.B, ink.B, step), 0xff,
			})
		}
	}
	return append(p, color.RGBA{0, 0, 0, 0xff}, color.RGBA{0xff, 0xff, 0xff, 0xff})
}

func mix(from, to uint8, step int) uint8 {
	return uint8((int(from)*(rampSteps-1-step) + int(to)*step) / (rampSteps - 1))
}

func newCanvas(w, h int, c colours) canvas {
	// Index 0 is the paper: there is nothing to clear.
	return canvas{image.NewPaletted(image.Rect(0, 0, w, h), c.palette())}
}

func (c canvas) fill(r image.Rectangle, index uint8) {
	r = r.Intersect(c.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		row := c.Pix[c.PixOffset(r.Min.X, y):c.PixOffset(r.Max.X, y)]
		for i := range row {
			row[i] = index
		}
	}
}

// The font's cell, in pixels: letters of any size are made of it. It covers
// Latin letters; others are shown as a question mark.
const (
	cellW = 8
	cellH = 16
)

// edge is the coverage, of 255, at which a letter begins: below the half, since
// thin strokes lose more than they should when they are enlarged.
const edge = 104

// textWidth is how wide n characters of the given height are.
func textWidth(n, size int) int { return n * size / 2 }

// text draws s with its upper left corner at x, y, size pixels high and half
// that wide a character.
func (c canvas) text(x, y int, s string, size int, r ramp, bold bool) {
	face := inconsolata.Regular8x16
	if bold {
		face = inconsolata.Bold8x16
	}
	n := 0
	for _, char := range s {
		c.glyph(face, x+textWidth(n, size), y, char, size, r)
		n++
	}
}

// glyph draws one character. Its mask is sampled between its pixels and the
// edge made as steep as one pixel of the result again, so that large letters
// are smooth instead of made of blocks.
func (c canvas) glyph(face *basicfont.Face, x, y int, char rune, size int, r ramp) {
	mask, ok := face.Mask.(*image.Alpha)
	offset, known := glyphOffset(face, char)
	if !ok || !known {
		return
	}
	top := offset * (face.Ascent + face.Descent)
	sample := func(sx, sy int) float64 {
		if sx < 0 || sy < 0 || sx >= face.Width || sy >= face.Ascent+face.Descent {
			return 0
		}
		return float64(mask.Pix[mask.PixOffset(sx, top+sy)])
	}
	scale := float64(size) / cellH
	steep := math.Max(1, scale)
	// A cell's overhang on either side belongs to the glyph too.
	x0 := x + int(math.Floor(float64(face.Left)*scale))
	x1 := x + int(math.Ceil(float64(face.Left+face.Width)*scale))
	y1 := y + int(math.Ceil(float64(face.Ascent+face.Descent)*scale))
	for py := max(y, c.Rect.Min.Y); py < min(y1, c.Rect.Max.Y); py++ {
		v := (float64(py-y)+0.5)/scale - 0.5
		sy := int(math.Floor(v))
		fy := v - float64(sy)
		for px := max(x0, c.Rect.Min.X); px < min(x1, c.Rect.Max.X); px++ {
			u := (float64(px-x)+0.5)/scale - 0.5 - float64(face.Left)
			sx := int(math.Floor(u))
			fx := u - float64(sx)
			a := (sample(sx, sy)*(1-fx)+sample(sx+1, sy)*fx)*(1-fy) +
				(sample(sx, sy+1)*(1-fx)+sample(sx+1, sy+1)*fx)*fy
			a = min(max((a-edge)*steep+128, 0), 255)
			if step := int(a / 256 * rampSteps); step > 0 {
				c.Pix[c.PixOffset(px, py)] = uint8(r)*rampSteps + uint8(step)
			}
		}
	}
}

// glyphOffset is the place of a character in a face's mask.
func glyphOffset(face *basicfont.Face, char rune) (int, bool) {
	for _, want := range []rune{char, '?'} {
		for _, r := range face.Ranges {
			if want >= r.Low && want < r.High {
				return r.Offset + int(want-r.Low), true
			}
		}
	}
	return 0, false
}
