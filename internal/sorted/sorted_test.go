package sorted

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type pair struct{ key, was int }

func TestBy(t *testing.T) {
	byKey := func(a, b pair) int { return cmp.Compare(a.key, b.key) }
	for n := range 100 {
		list := make([]pair, n)
		for i := range list {
			list[i] = pair{rand.IntN(10), i}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, byKey)
		if By(list, byKey); !slices.Equal(list, want) {
			t.Fatalf("%v, want %v", list, want)
		}
	}
}
