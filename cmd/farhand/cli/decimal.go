package cli

import (
	"math"
	"strconv"
)

// decimal is a flag that is a number. NaN and Inf, which strconv reads and JSON
// can't hold, are none.
type decimal float64

func (n *decimal) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !finite(v) {
		return strconv.ErrSyntax
	}
	*n = decimal(v)
	return nil
}

func (n *decimal) String() string { return strconv.FormatFloat(float64(*n), 'g', -1, 64) }

// Type is what help shows.
func (*decimal) Type() string { return "float" }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
