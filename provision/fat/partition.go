package fat

import "sync"

// Partition is a Volume on a block device. It is mounted without a place in the
// directory tree, by a descriptor: nobody else sees it, and it is gone with the
// process, however that ends.
type Partition struct {
	Device string // /dev/mmcblk0p1
	// Type is the file system's; empty: vfat.
	Type string

	mu sync.Mutex
}

var _ Volume = (*Partition)(nil)
