// Package sorted sorts short lists with one sort for all types. slices.SortFunc
// has the compiler make a sort of its own for each type of element, some 15 KB of
// the daemon, whose size is bounded; where a list may be long or a sort is often
// done, that is worth it.
package sorted

import "sort"

// By sorts list in the order of compare, which is as for slices.SortFunc. Equal
// elements stay in the order that they have.
func By[T any](list []T, compare func(a, b T) int) {
	sort.Stable(lister{
		len(list),
		func(i, j int) bool { return compare(list[i], list[j]) < 0 },
		func(i, j int) { list[i], list[j] = list[j], list[i] },
	})
}

type lister struct {
	length int
	less   func(i, j int) bool
	swap   func(i, j int)
}

func (l lister) Len() int           { return l.length }
func (l lister) Less(i, j int) bool { return l.less(i, j) }
func (l lister) Swap(i, j int)      { l.swap(i, j) }
