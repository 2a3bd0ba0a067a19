package octosim_test

import (
	"testing"

	"farhand/device/devicetest"
	"farhand/octoprint/octoprinttest"
	"farhand/octoprint/octosim"
	"farhand/octoprint/octotest"
	"farhand/wire"
)

func open(o octotest.Options) func(t testing.TB) octoprinttest.Bench {
	return func(t testing.TB) octoprinttest.Bench {
		files := &octoprinttest.Files{}
		b, err := octosim.New(octosim.Options{Files: files, Server: o})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return octoprinttest.Bench{Family: b.Family(), ID: "printer:" + octosim.Name, Files: files, NoSelect: o.Moonraker, NoRename: o.Moonraker}
	}
}

func TestSuite(t *testing.T)          { octoprinttest.Run(t, open(octotest.Options{})) }
func TestSuiteAPI2(t *testing.T)      { octoprinttest.Run(t, open(octotest.Options{API2: true})) }
func TestSuiteMoonraker(t *testing.T) { octoprinttest.Run(t, open(octotest.Options{Moonraker: true})) }

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		b := open(octotest.Options{})(t)
		return devicetest.Bench{Family: b.Family, ID: b.ID, Op: wire.HardwareOp{Device: b.ID, Op: wire.OpPrinterStatus}}
	})
}
