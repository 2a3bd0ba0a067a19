package gpiosim_test

import (
	"testing"

	"farhand/gpio/gpiosim"
	"farhand/gpio/gpiotest"
)

func TestConformance(t *testing.T) {
	gpiotest.Run(t, func(t *testing.T) gpiotest.Bench {
		bench := gpiosim.Standard()
		c := bench.Chip("gpiochip0")
		c.NoEdges(9)
		open, err := bench.Open("/dev/gpiochip0")
		if err != nil {
			t.Fatal(err)
		}
		return gpiotest.Bench{
			Chip: open, Label: "pinctrl-bcm2711", Free: [8]int{2, 3, 4, 5, 6, 7, 8, 10}, NoEdges: 9,
			Drive:  func(_ testing.TB, line, level int) { c.Drive(line, level) },
			Level:  func(_ testing.TB, line int) int { return c.Level(line) },
			Vanish: func(testing.TB) { c.Vanish() },
			Adopt:  bench.Adopt,
		}
	})
}
