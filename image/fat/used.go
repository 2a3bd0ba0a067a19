package fat

// Extent is a range of bytes.
type Extent struct{ Start, Length int64 }

// Used are the ranges that mean something: everything before the first cluster,
// and the clusters that are not free, in order and joined where they touch.
func (v *Volume) Used() []Extent {
	all := []Extent{{0, v.data}}
	for i, e := range v.table[2:] {
		if e == 0 {
			continue
		}
		at, last := v.at(uint32(i)+2), &all[len(all)-1]
		if last.Start+last.Length == at {
			last.Length += v.unit
		} else {
			all = append(all, Extent{at, v.unit})
		}
	}
	return all
}
