package screen

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"farhand/provision/request"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

func at() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func pairing() request.Pairing {
	return request.Pairing{
		VerificationURI:         "https://relay.example.com/device",
		VerificationURIComplete: "https://relay.example.com/device?user_code=BCDF-GHJK",
		UserCode:                "BCDF-GHJK",
		ExpiresAt:               at().Add(42 * time.Minute),
		Relay:                   "https://relay.example.com",
		Name:                    "farhand-1a2b3c4d",
	}
}

func pairingPage() Page {
	p := pairing()
	return Compose(View{Pairing: &p}, at())
}

// decode reads the QR code in a picture.
func decode(t *testing.T, img image.Image) string {
	t.Helper()
	bitmap, err := gozxing.NewBinaryBitmapFromImage(img)
	if err != nil {
		t.Fatal(err)
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{
		gozxing.DecodeHintType_TRY_HARDER: true,
	})
	if err != nil {
		t.Fatalf("no QR code found: %v", err)
	}
	return result.GetText()
}

func TestPictureHoldsTheCode(t *testing.T) {
	data, err := pairingPage().PNG()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got := decode(t, img); got != pairing().VerificationURIComplete {
		t.Errorf("the picture's code holds %q", got)
	}
	if len(data) > 64<<10 {
		t.Errorf("the picture has %d bytes; the boot partition is small", len(data))
	}
}

// memory is a framebuffer that is only bytes.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(m)) {
		return 0, io.ErrShortWrite
	}
	return copy(m[off:], p), nil
}

func formats(w, h int) map[string]format {
	rgb565 := format{
		width: w, height: h, stride: 2 * w, bits: 16,
		red: field{11, 5}, green: field{5, 6}, blue: field{0, 5},
	}
	xrgb8888 := format{
		width: w, height: h, stride: 4 * w, bits: 32,
		red: field{16, 8}, green: field{8, 8}, blue: field{0, 8}, alpha: field{24, 8},
	}
	rgb888 := xrgb8888
	rgb888.stride, rgb888.bits, rgb888.alpha = 3*w, 24, field{}
	panned := xrgb8888
	panned.stride, panned.x, panned.y = 4*(w+40), 7, 11
	all := map[string]format{"16": rgb565, "24": rgb888, "32": xrgb8888, "32 panned": panned}
	for name, f := range all {
		f.length = f.stride * (f.height + f.y)
		all[name] = f
	}
	return all
}

// see is what a display shows of a framebuffer.
func (f format) see(m memory) image.Image {
	img := image.NewRGBA(image.Rect(0, 0, f.width, f.height))
	part := func(v uint32, c field) uint8 {
		return uint8(v >> c.offset & (1<<c.length - 1) << (8 - c.length))
	}
	for y := range f.height {
		for x := range f.width {
			var raw [4]byte
			copy(raw[:f.bits/8], m[(y+f.y)*f.stride+(x+f.x)*f.bits/8:])
			v := binary.LittleEndian.Uint32(raw[:])
			img.SetRGBA(x, y, color.RGBA{part(v, f.red), part(v, f.green), part(v, f.blue), 0xff})
		}
	}
	return img
}

func TestDisplayHoldsTheCode(t *testing.T) {
	for _, size := range sizes() {
		for name, f := range formats(size.X, size.Y) {
			t.Run(size.String()+" "+name, func(t *testing.T) {
				if err := f.check(); err != nil {
					t.Fatal(err)
				}
				c, err := pairingPage().draw(f.width, f.height, dark())
				if err != nil {
					t.Fatal(err)
				}
				m := make(memory, f.length)
				if err := f.write(m, c); err != nil {
					t.Fatal(err)
				}
				seen := f.see(m)
				if got := decode(t, seen); got != pairing().VerificationURIComplete {
					t.Errorf("the display's code holds %q", got)
				}
				// Nothing of a pixel gets lost but what the format has no bits for.
				for _, at := range []image.Point{{0, 0}, {f.width - 1, f.height - 1}, {f.width / 3, f.height / 2}} {
					r, _, _, _ := seen.At(at.X, at.Y).RGBA()
					want, _, _, _ := c.At(at.X, at.Y).RGBA()
					if diff := int(r>>8) - int(want>>8); diff < -8 || diff > 8 {
						t.Errorf("red at %v is %d, not %d", at, r>>8, want>>8)
					}
				}
			})
		}
	}
}

// screenshot is what a terminal with colours and that many columns shows of
// text: blocks and blanks as they look, letters as nothing.
func screenshot(t *testing.T, text string, cols int) image.Image {
	t.Helper()
	const cellW, cellH = 4, 8
	escape := regexp.MustCompile(`^\x1b(c|%G|\[[0-9;?]*[A-Za-z\]])`)
	lines := strings.Split(text, "\r\n")
	img := image.NewGray(image.Rect(0, 0, cols*cellW, len(lines)*cellH))
	shade := func(code byte) uint8 {
		if code == '0' {
			return 0
		}
		return 0xff
	}
	for y, l := range lines {
		x, fg, bg := 0, uint8(0xff), uint8(0)
		for l != "" {
			if l[0] == 0x1b {
				seq := escape.FindString(l)
				if seq == "" {
					t.Fatalf("an escape sequence that isn't known in %q", l)
				}
				if m := regexp.MustCompile(`^\x1b\[0;3(.);4(.)m$`).FindStringSubmatch(seq); m != nil {
					fg, bg = shade(m[1][0]), shade(m[2][0])
				} else if seq == plainText {
					fg, bg = 0xff, 0
				}
				l = l[len(seq):]
				continue
			}
			char, n := []rune(l)[0], len(string([]rune(l)[0]))
			cell := image.Rect(x*cellW, y*cellH, (x+1)*cellW, (y+1)*cellH)
			draw.Draw(img, cell, image.NewUniform(color.Gray{bg}), image.Point{}, draw.Src)
			if string(char) == upperHalf {
				cell.Max.Y -= cellH / 2
				draw.Draw(img, cell, image.NewUniform(color.Gray{fg}), image.Point{}, draw.Src)
			}
			l = l[n:]
			x++
		}
		if x > cols {
			t.Errorf("line %d has %d columns", y, x)
		}
	}
	return img
}

func TestSerialTextHoldsTheCode(t *testing.T) {
	text := string(pairingPage().Serial())
	if got := decode(t, screenshot(t, text, columns)); got != pairing().VerificationURIComplete {
		t.Errorf("the serial console's code holds %q", got)
	}
	for i, b := range []byte(text) {
		if b > 0x7e || b < 0x20 && !strings.ContainsRune("\r\n\x1b", rune(b)) {
			t.Fatalf("byte %d is %#x: not every terminal knows that", i, b)
		}
	}
	if !strings.Contains(text, pairing().UserCode) || !strings.Contains(text, pairing().VerificationURI) {
		t.Error("the code and the address don't stand beside the picture")
	}
	if len(text) > 12<<10 {
		t.Errorf("%d bytes take more than a second at 115200 baud", len(text))
	}
}

// A log or a terminal without colours has the pattern in the characters alone.
func TestSerialTextWithoutColours(t *testing.T) {
	text := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(string(pairingPage().Serial()), "")
	lines := strings.Split(text, "\r\n")
	img := image.NewGray(image.Rect(0, 0, columns*4, len(lines)*8))
	for y, l := range lines {
		for x := range len(l) {
			if l[x] == '#' {
				draw.Draw(img, image.Rect(x*4, y*8, x*4+4, y*8+8), image.White, image.Point{}, draw.Src)
			}
		}
	}
	if got := decode(t, img); got != pairing().VerificationURIComplete {
		t.Errorf("without colours the code holds %q", got)
	}
}

func TestConsoleTextHoldsTheCode(t *testing.T) {
	for _, size := range [][2]int{{80, 25}, {128, 48}, {60, 40}, {48, 60}} {
		text := string(pairingPage().Console(size[0], size[1]))
		if got := decode(t, screenshot(t, text, size[0])); got != pairing().VerificationURIComplete {
			t.Errorf("%v: the console's code holds %q", size, got)
		}
		if n := strings.Count(text, "\r\n"); n >= size[1] {
			t.Errorf("%v: %d lines: the first would have scrolled away", size, n)
		}
	}
}

// Whatever the length of an address, the serial text keeps to 80 columns, and
// what it shows can be read.
func TestSerialTextOfAnyAddress(t *testing.T) {
	for n := 20; n < 300; n += 7 {
		c := pairing()
		c.VerificationURIComplete = "https://" + strings.Repeat("relay.", n/6) + "example"
		text := string(Compose(View{Pairing: &c}, at()).Serial())
		img := screenshot(t, text, columns)
		if !strings.Contains(text, "##") {
			if len(c.VerificationURIComplete) <= 78 {
				t.Errorf("no code for an address of %d bytes, though there is room", n)
			}
			continue
		}
		if got := decode(t, img); got != c.VerificationURIComplete {
			t.Errorf("%d bytes: the code holds %q", n, got)
		}
	}
}

func TestJoinCode(t *testing.T) {
	got := JoinCode(`a;b:c\d"e,f`, "pass")
	if want := `WIFI:T:WPA;S:a\;b\:c\\d\"e\,f;P:pass;;`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
