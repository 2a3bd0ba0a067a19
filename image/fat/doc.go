// Package fat reads and changes the files of a FAT16 or FAT32 file system in a
// file or on a device, without mounting it: the boot partitions of an image when
// it is checked, and the first partition of a card when it is flashed.
//
// The format is that of Microsoft's "FAT: General Overview of On-Disk Format",
// version 1.03, with long names; sectors have 512 bytes. A Volume is for one
// goroutine at a time.
package fat

import (
	"errors"
	"io"
)

// Storage holds a file system from its first byte on.
type Storage interface {
	io.ReaderAt
	io.WriterAt
}

// ErrFull says that the file system or a fixed root directory has no room.
var ErrFull = errors.New("file system full")

// ErrFormat says that what is there is no FAT16 or FAT32 that can be used, or
// contradicts itself.
var ErrFormat = errors.New("not a sound FAT16 or FAT32 file system")

const (
	sector   = 512
	entry    = 32      // bytes of a directory's record
	maxDir   = 2 << 20 // bytes of a directory: 65536 records
	maxFile  = 1 << 30 // bytes of a file that this package reads into memory
	clusters = 1 << 22 // bound of the table that is kept in memory

	// A count of clusters decides what a file system is (section 3.5).
	least16, least32 = 4085, 65525
)
