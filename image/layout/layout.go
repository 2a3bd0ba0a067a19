// Package layout says what is where on a card: what the builder writes, the
// initramfs looks for and an updater will have to find again.
package layout

// Signature is the disk signature in the MBR of every card, by which the
// initramfs knows it. A GUID partition table has it at the beginning of its GUIDs.
const Signature = 0xfa44a17d

// Numbers of the partitions, as Linux, GRUB and the Pi's firmware count them. The
// fourth of an MBR holds those from 5 on; a GUID partition table has no fourth.
const (
	Autoboot = 1 // what the firmware reads first, and where a person puts files
	BootA    = 2
	BootB    = 3
	SystemA  = 5
	SystemB  = 6
	Data     = 7
)

// Names of the partitions in a GUID partition table.
func Names() map[int]string {
	return map[int]string{Autoboot: "FARHAND", BootA: "boot A", BootB: "boot B", SystemA: "system A", SystemB: "system B", Data: "data"}
}

// Labels of file systems, at most 11 characters for a FAT, 16 for ext4.
const (
	AutobootLabel = "FARHAND"
	BootLabel     = "FARBOOT"
	DataLabel     = "fardata"
	// NewDataLabel is what the data file system is called until it is complete.
	NewDataLabel = "farnew"
	// GivenDataLabel is what it is called in an image that brings one, until a
	// machine has made it its own.
	GivenDataLabel = "fargiven"
)

// Begun stands on the data partition, BegunBack bytes before its end, while the
// file system is made: until that has a superblock nothing else tells what lies
// there from a file system that has lost its own. mke2fs leaves the place alone:
// it only cleans the last 64 KiB.
const (
	Begun     = "Farhand's data file system is being made here\n"
	BegunBack = 128 << 10
)
