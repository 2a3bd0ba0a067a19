package screen

import (
	"bytes"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/provision/request"
)

var update = flag.Bool("update", false, "write the pictures of testdata anew")

func sizes() []image.Point { return []image.Point{{640, 480}, {1920, 1080}, {480, 320}} }

func connected() View {
	return View{Status: &request.Status{
		State: "connected", Name: "Bench by the window", MDNSName: "farhand-1a2b3c4d.local",
		Addresses: []string{"192.168.7.23", "fd12:3456:789a::23"}, Relay: "https://relay.example.com",
		Wifi: "connected to Workshop", ClockState: "synchronised",
		Devices: []request.Device{
			{ID: "gpio:pinctrl-bcm2835", Desc: "54 lines"},
			{ID: "serial:usb-0403:6001-A50285BI", Desc: "FT232R USB UART"},
			{ID: "i2c:1"},
		},
	}}
}

func offline() View {
	return View{
		Status:   &request.Status{State: "offline", Name: "farhand-1a2b3c4d", Relay: "https://relay.example.com"},
		Wifi:     request.WifiFacts{State: request.WifiNoCountry},
		Rescue:   &Rescue{SSID: "farhand-1a2b3c4d", Passphrase: "bcdf-ghjk-mnpq", URL: "http://10.42.0.1/"},
		Problems: []string{"The data partition can't be written: nothing is kept until the card is replaced."},
	}
}

// The pictures of testdata are what a display shows. After a change look at
// them: go test ./provision/screen -update
func TestLayouts(t *testing.T) {
	p := pairing()
	views := map[string]View{"pairing": {Pairing: &p}, "connected": connected(), "offline": offline()}
	for name, v := range views {
		for _, size := range sizes() {
			t.Run(name+" "+size.String(), func(t *testing.T) {
				c, err := Compose(v, at()).draw(size.X, size.Y, dark())
				if err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join("testdata", name+"-"+strings.Trim(strings.ReplaceAll(size.String(), ",", "x"), "()")+".png")
				if *update {
					var out bytes.Buffer
					enc := png.Encoder{CompressionLevel: png.BestCompression}
					if err := enc.Encode(&out, c.Paletted); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				f, err := os.Open(golden)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				img, err := png.Decode(f)
				if err != nil {
					t.Fatal(err)
				}
				want, ok := img.(*image.Paletted)
				if !ok {
					t.Fatalf("%s is a %T", golden, img)
				}
				if !bytes.Equal(want.Pix, c.Pix) || want.Rect != c.Rect {
					t.Errorf("the display doesn't look like %s any more", golden)
				}
			})
		}
	}
}

// Any display gets the user code, however small or long, and nothing is drawn
// outside of it.
func TestOddDisplays(t *testing.T) {
	for _, size := range []image.Point{{1, 1}, {128, 64}, {240, 240}, {320, 240}, {480, 800}, {800, 480}, {3840, 400}} {
		c, err := pairingPage().draw(size.X, size.Y, dark())
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Pix) != size.X*size.Y {
			t.Errorf("%v: %d pixels", size, len(c.Pix))
		}
		if size.X >= 240 && size.Y >= 240 {
			if got := decode(t, c); got != pairing().VerificationURIComplete {
				t.Errorf("%v: the code holds %q", size, got)
			}
		}
	}
}

func TestFormatsThatMakeNoSense(t *testing.T) {
	good := formats(640, 480)["32"]
	for name, change := range map[string]func(*format){
		"eight bits":           func(f *format) { f.bits = 8 },
		"no width":             func(f *format) { f.width = 0 },
		"rows too short":       func(f *format) { f.stride-- },
		"memory too short":     func(f *format) { f.length-- },
		"huge":                 func(f *format) { f.width = 1 << 30; f.stride = 4 << 30; f.length = 1 << 60 },
		"colour out of bounds": func(f *format) { f.red = field{28, 8} },
		"no colour":            func(f *format) { f.green = field{} },
		"before the start":     func(f *format) { f.y = -1 },
	} {
		f := good
		change(&f)
		if f.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}

// noted is a code that is there because a claim key let nobody in.
func noted() *request.Pairing {
	p := pairing()
	p.Note = "the claim key of this card isn't accepted: it has expired, was revoked or was used before"
	return &p
}

func TestPages(t *testing.T) {
	p := pairing()
	none := &request.Status{State: "connecting", Name: "n"}
	for name, c := range map[string]struct {
		view  View
		want  []string
		never []string
	}{
		"nothing yet":                  {View{}, []string{"Starting."}, nil},
		"pairing":                      {View{Pairing: &p}, []string{"BCDF-GHJK", "https://relay.example.com/device", "42 minutes", "farhand approve BCDF-GHJK"}, []string{"No network"}},
		"a claim key that was refused": {View{Pairing: noted()}, []string{"BCDF-GHJK", "the claim key of this card isn't accepted"}, nil},
		"pairing without network": {View{Pairing: &p, Status: none, Wifi: request.WifiFacts{State: request.WifiOff}},
			[]string{"BCDF-GHJK", "No network. Plug in a network cable, or flash"}, nil},
		// Field case 82: a radio without a country may not send, and nobody sees why.
		"no country": {View{Status: none, Wifi: request.WifiFacts{State: request.WifiNoCountry}},
			[]string{"may not send before its country is known"}, nil},
		"known network out of reach": {View{Status: none, Wifi: request.WifiFacts{State: request.WifiReady, SSIDHex: "576f726b73686f70"}},
			[]string{`"Workshop"`, "its password may be wrong"}, nil},
		"connected": {connected(), []string{"Bench by the window", "Connected to relay.example.com", "farhand-1a2b3c4d.local",
			"192.168.7.23", "Devices: 3", "gpio:pinctrl-bcm2835 54 lines"}, []string{"No network", "Wi-Fi network,"}},
		"rescue":               {offline(), []string{"farhand-1a2b3c4d", "bcdf-ghjk-mnpq", "http://10.42.0.1/", "can't be written"}, nil},
		"rescue beside a code": {View{Pairing: &p, Rescue: offline().Rescue}, []string{"BCDF-GHJK", "bcdf-ghjk-mnpq"}, []string{"scan the code with a phone, or join"}},
		"rescue that can't":    {View{Rescue: &Rescue{Problem: "dnsmasq (pid 7) holds port 53"}}, []string{"dnsmasq (pid 7) holds port 53"}, []string{"password"}},
		"halted":               {View{Status: &request.Status{State: "halted"}}, []string{"farhandd resume"}, nil},
		"login":                {View{Status: &request.Status{State: "login_needed", Relay: "https://x.example/y"}}, []string{"x.example", "farhandd login"}, nil},
		"clock":                {View{Status: &request.Status{State: "connected", ClockState: "floor"}}, []string{"isn't synchronised yet (floor)"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			page := Compose(c.view, at())
			text := string(page.Text())
			joined := strings.Join(strings.Fields(text), " ")
			for _, want := range c.want {
				if !strings.Contains(joined, want) {
					t.Errorf("%q is missing in:\n%s", want, text)
				}
			}
			for _, never := range c.never {
				if strings.Contains(joined, never) {
					t.Errorf("%q stands in:\n%s", never, text)
				}
			}
		})
	}
}

func TestCodeThatHasRunOut(t *testing.T) {
	p := pairing()
	text := string(Compose(View{Pairing: &p}, p.ExpiresAt.Add(time.Second)).Text())
	if !strings.Contains(text, "has run out") {
		t.Error(text)
	}
}

// What a phone would do with it is nobody's guess, so only web addresses become
// a code to scan.
func TestOnlyWebAddressesAreScanned(t *testing.T) {
	p := pairing()
	p.VerificationURIComplete = "tel:0900123456"
	page := Compose(View{Pairing: &p}, at())
	if page.QR != p.VerificationURI {
		t.Errorf("the code holds %q", page.QR)
	}
}

func TestLongListsEnd(t *testing.T) {
	v := connected()
	for range 60 {
		v.Status.Devices = append(v.Status.Devices, request.Device{ID: "usb:1234:5678"})
	}
	text := string(Compose(v, at()).Text())
	if !strings.Contains(text, "and 51 more") {
		t.Error(text)
	}
}
