package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"farhand/e2e/boot/firmware"
	"farhand/provision/preseed"
)

var setupPattern = regexp.MustCompile(`/setup\?token=([A-Za-z0-9_-]+)`)

// userCode is what the relay mints: 8 of 20 consonants.
const userCode = `\b([BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4})\b`

// capabilities are what a device of the test gets.
const capabilities = "files,shell,hardware_gpio,hardware_serial,hardware_usb,hardware_i2c,hardware_spi"

// pairing is a device that shows a code.
type pairing struct {
	*device
	code string
}

// pair are the steps from a fresh card to a device that the relay has.
func (p *pairing) pair(display bool) []step {
	steps := []step{
		{"a card is flashed", 2 * time.Minute, p.unclaimed},
		{"a code on the serial console", p.longestBoot(), p.readCode},
		{"the same in PAIR.TXT and in the QR of PAIR.PNG", time.Minute, p.readCard},
	}
	if display {
		steps = append(steps, step{"the same in the QR on the display", 2 * time.Minute, p.readDisplay})
	}
	steps = append(steps,
		step{"approved, it comes online", 2 * time.Minute, p.approve},
		step{"nothing of the code stays on the card", time.Minute, p.forgotten},
	)
	if display {
		steps = append(steps, step{"nor on the display", time.Minute, p.cleared})
	}
	return steps
}

// longestBoot is how long a board may take from power to a code or to the relay.
func (d *device) longestBoot() time.Duration {
	return [...]time.Duration{4 * time.Minute, 8 * time.Minute, 6 * time.Minute, 6 * time.Minute}[d.kind]
}

func (p *pairing) readCode(ctx context.Context) error {
	if err := p.power(firmware.Start{}); err != nil {
		return err
	}
	m, err := p.m.Await(ctx, 0, userCode)
	if err != nil {
		return err
	}
	p.code = m[1]
	p.report.measure(p.kind.String()+": power on to the code, first boot", time.Since(p.on).Seconds(), "s", 0)
	return nil
}

// readCard looks at the card as another computer would.
func (p *pairing) readCard(ctx context.Context) error {
	return p.poll(ctx, 3*time.Second, "the code is not on the card", func() (seen bool, err error) {
		err = p.onCard(ctx, p.m.Card, func(files fs.FS) error {
			text, err := fs.ReadFile(files, "PAIR.TXT")
			if err != nil {
				return err
			}
			if !bytes.Contains(text, []byte(p.code)) {
				return fmt.Errorf("PAIR.TXT doesn't hold %s but %q", p.code, text)
			}
			picture, err := fs.ReadFile(files, "PAIR.PNG")
			if err != nil {
				return err
			}
			seen = true
			return p.sees(picture)
		})
		return seen, err
	})
}

func (p *pairing) readDisplay(ctx context.Context) error {
	return p.poll(ctx, 2*time.Second, "the code is not on the display", func() (bool, error) {
		picture, err := p.picture(ctx, "pairing")
		if err != nil {
			return false, err
		}
		return true, p.sees(picture)
	})
}

// cleared waits until the display has no QR code any more. What it shows instead
// is for people to look at.
func (p *pairing) cleared(ctx context.Context) error {
	return p.poll(ctx, 2*time.Second, "the code is still on the display", func() (bool, error) {
		picture, err := p.picture(ctx, "paired")
		if err != nil {
			return false, err
		}
		_, err = decode(picture)
		return err != nil, nil
	})
}

// picture takes one of the display and leaves it beside the report.
func (p *pairing) picture(ctx context.Context, name string) ([]byte, error) {
	picture, err := p.m.Screen(ctx)
	if err != nil {
		return nil, err
	}
	at := filepath.Join(filepath.Dir(p.options.report), "boot-test-"+name+".png")
	return picture, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, picture, 0o644))
}

// sees decodes the QR code in a picture, which must lead to this code at this
// relay.
func (p *pairing) sees(picture []byte) error {
	text, err := decode(picture)
	if err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Query().Get("user_code") != p.code || !strings.HasPrefix(text, p.bench.relayFor()+"/") {
		return fmt.Errorf("the QR code leads to %s, the code is %s", text, p.code)
	}
	return nil
}

func decode(picture []byte) (string, error) {
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return "", err
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(img)
	if err != nil {
		return "", err
	}
	found, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_TRY_HARDER: true})
	if err != nil {
		return "", fmt.Errorf("no QR code is found in the picture: %w", err)
	}
	return found.GetText(), nil
}

func (p *pairing) approve(ctx context.Context) error {
	if _, err := p.bench.farhand(ctx, "approve", p.code, "--yes", "--name", p.host, "--allow", capabilities); err != nil {
		return err
	}
	_, err := p.online(ctx)
	return err
}

func (p *pairing) forgotten(ctx context.Context) error {
	return p.poll(ctx, 2*time.Second, "the code is still on the card", func() (bool, error) {
		err := p.onCard(ctx, p.m.Card, func(files fs.FS) error {
			for _, name := range []string{"PAIR.TXT", "PAIR.PNG", "STATUS.TXT", preseed.FarhandFile, preseed.PreseedFile} {
				if _, err := fs.Stat(files, name); !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("%s is there (%v)", name, err)
				}
			}
			return nil
		})
		return err == nil, err
	})
}

// unclaimed flashes a card that shows a code.
func (d *device) unclaimed(ctx context.Context) error {
	_, err := d.flash(ctx, "--no-claim")
	return err
}

// claimed flashes a card that pairs by itself.
func (d *device) claimed(ctx context.Context) error {
	_, err := d.flash(ctx, "--claim")
	return err
}
