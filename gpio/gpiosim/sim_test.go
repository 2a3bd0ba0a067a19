package gpiosim_test

import (
	"errors"
	"os"
	"testing"

	"farhand/device/simsysfs"
	"farhand/gpio"
	"farhand/gpio/gpiosim"
	"farhand/gpio/gpiotest"
)

func TestConformance(t *testing.T) {
	gpiotest.Run(t, func(t *testing.T) gpiotest.Bench {
		bench := gpiosim.Standard()
		c := bench.Chip("gpiochip0")
		open, err := bench.Open("/dev/gpiochip0")
		if err != nil {
			t.Fatal(err)
		}
		return gpiotest.Bench{
			Chip: open, Label: "pinctrl-bcm2711", Free: [8]int{2, 3, 4, 5, 6, 7, 8, 10},
			Drive:  func(_ testing.TB, line, level int) { c.Drive(line, level) },
			Level:  func(_ testing.TB, line int) int { return c.Level(line) },
			Vanish: func(testing.TB) { c.Vanish() },
			Adopt:  bench.Adopt,
		}
	})
}

func TestNoInterrupt(t *testing.T) {
	bench := gpiosim.Standard()
	c := bench.Chip("gpiochip0")
	c.NoEdges(9)
	open, err := bench.Open("gpiochip0")
	if err != nil {
		t.Fatal(err)
	}
	gpiotest.NoInterrupt(t, gpiotest.Bench{Chip: open, Level: func(_ testing.TB, line int) int { return c.Level(line) }}, 9)
}

func TestService(t *testing.T) {
	gpiotest.RunService(t, func(t *testing.T) gpiotest.ServiceBench {
		bench := gpiosim.Standard()
		c := bench.Chip("gpiochip0")
		open, err := bench.Open("/dev/gpiochip0")
		if err != nil {
			t.Fatal(err)
		}
		tree := simsysfs.New(t.TempDir())
		tree.AddGPIO(simsysfs.GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512})
		if err := tree.Err(); err != nil {
			t.Fatal(err)
		}
		return gpiotest.ServiceBench{
			Bench: gpiotest.Bench{
				Chip: open, Label: "pinctrl-bcm2711", Free: [8]int{2, 3, 4, 5, 6, 7, 8, 10},
				Drive:  func(_ testing.TB, line, level int) { c.Drive(line, level) },
				Level:  func(_ testing.TB, line int) int { return c.Level(line) },
				Vanish: func(testing.TB) { c.Vanish() },
				Adopt:  bench.Adopt,
			},
			Driver: gpio.Driver{FS: tree.FS}, Device: "gpio:pinctrl-bcm2711", Open: bench.Open,
			Kill: bench.Kill,
		}
	})
}

// A process that was killed drives nothing any more, whatever its threads are at.
func TestKilled(t *testing.T) {
	bench := gpiosim.Standard()
	c, err := bench.Open("/dev/gpiochip0")
	if err != nil {
		t.Fatal(err)
	}
	out := []gpio.LineConfig{{Offset: 5, Direction: gpio.Out}}
	old, err := c.Request(out, gpio.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bench.Kill()
	next, err := c.Request(out, gpio.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Set(1, 1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the dead sets a line: %v", err)
	}
	if err := errors.Join(old.Close(), next.Set(1, 1)); err != nil {
		t.Error(err)
	}
	if l := bench.Chip("gpiochip0").Level(5); l != 1 {
		t.Errorf("the line is at %d", l)
	}
}
