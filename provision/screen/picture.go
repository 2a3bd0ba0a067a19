package screen

import (
	"bytes"
	"fmt"
	"image/png"
)

// The size of PAIR.PNG in pixels: it fits a laptop's screen and a printed page.
const (
	pictureW = 1200
	pictureH = 720
)

// PNG is the page as a picture, dark on light.
func (p Page) PNG() ([]byte, error) {
	c, err := p.draw(pictureW, pictureH, light())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.BestCompression}
	if err := enc.Encode(&out, c.Paletted); err != nil {
		return nil, fmt.Errorf("encode the page: %w", err)
	}
	return out.Bytes(), nil
}
