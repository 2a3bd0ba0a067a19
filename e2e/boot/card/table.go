package card

import (
	"io"

	"farhand/image/initramfs/table"
)

// Partition is a part of a card.
type Partition struct {
	Type         byte  // as an MBR has it: 0x0c is FAT, 0x83 Linux, 0x0f extended
	Offset, Size int64 // in bytes
}

// partitions reads a card's table.
func partitions(r io.ReaderAt) (map[int]Partition, error) {
	t, err := table.Read(r)
	if err != nil {
		return nil, err
	}
	all := make(map[int]Partition)
	for _, p := range t.Partitions {
		all[p.Number] = Partition{p.Type, p.Start * table.Sector, p.Size * table.Sector}
	}
	return all, nil
}
