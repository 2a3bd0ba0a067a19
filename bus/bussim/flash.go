package bussim

// Flash is an SPI NOR flash of 1 MiB, a W25Q80DV after Winbond's data sheet of
// it: identification, status, read, page program, sector and chip erase. Like
// the real one it programs bits only from 1 to 0, needs a write enable before
// each change, wraps within its pages of 256 bytes, and is busy for a while.
type Flash struct {
	cells   []byte
	enabled bool // write enable latch
	busy    int  // reads of the status until it is done

	selected bool
	command  byte
	n        int // bytes since it was selected
	address  int
	page     []byte // what a page program brought
}

// Commands of the flash.
const (
	flashProgram   = 0x02
	flashRead      = 0x03
	flashDisable   = 0x04
	flashStatus    = 0x05
	flashEnable    = 0x06
	flashFastRead  = 0x0b
	flashSector    = 0x20 // erases 4 KiB
	flashBlock     = 0xd8 // erases 64 KiB
	flashJEDEC     = 0x9f
	flashChip      = 0xc7
	flashChipToo   = 0x60
	flashSize      = 1 << 20
	flashPage      = 256
	flashBusy      = 1 << 0
	flashEnabled   = 1 << 1
	flashBusyReads = 2
)

// NewFlash makes an erased one.
func NewFlash() *Flash {
	f := &Flash{cells: make([]byte, flashSize)}
	f.erase(0, flashSize)
	return f
}

func (f *Flash) erase(from, n int) {
	from &= flashSize - 1
	from -= from % n
	for i := range n {
		f.cells[from+i] = 0xff
	}
}

// Select begins a command.
func (f *Flash) Select() {
	f.selected, f.n, f.address, f.page = true, 0, 0, nil
}

// Exchange takes a byte of the command, and gives one of the answer.
func (f *Flash) Exchange(in byte) byte {
	if !f.selected {
		return 0xff
	}
	n := f.n
	f.n++
	if n == 0 {
		f.command = in
		return 0xff
	}
	if f.busy > 0 && f.command != flashStatus {
		return 0xff
	}
	switch f.command {
	case flashJEDEC:
		return []byte{0xef, 0x40, 0x14}[(n-1)%3] // Winbond, SPI, 2^20 bytes
	case flashStatus:
		return f.status()
	case flashRead, flashFastRead, flashProgram, flashSector, flashBlock:
		if n <= 3 {
			f.address = f.address<<8 | int(in)
			return 0xff
		}
	}
	switch f.command {
	case flashFastRead:
		if n > 4 { // after a byte of nothing
			return f.next()
		}
	case flashRead:
		return f.next()
	case flashProgram:
		f.page = append(f.page, in)
		if len(f.page) > flashPage { // only the last page counts
			f.page = f.page[1:]
			f.address++
		}
	}
	return 0xff
}

func (f *Flash) next() byte {
	b := f.cells[f.address&(flashSize-1)]
	f.address++
	return b
}

func (f *Flash) status() (s byte) {
	if f.busy > 0 {
		f.busy--
		s |= flashBusy
	}
	if f.enabled {
		s |= flashEnabled
	}
	return s
}

// Deselect is when a change begins.
func (f *Flash) Deselect() {
	f.selected = false
	if f.busy > 0 {
		return
	}
	switch f.command {
	case flashEnable:
		f.enabled = true
		return
	case flashDisable:
		f.enabled = false
		return
	}
	if !f.enabled {
		return
	}
	addressed := f.n >= 4
	switch {
	case f.command == flashProgram && addressed && len(f.page) > 0:
		base := f.address &^ (flashPage - 1) & (flashSize - 1)
		for i, b := range f.page {
			f.cells[base+(f.address+i)&(flashPage-1)] &= b
		}
	case f.command == flashSector && addressed:
		f.erase(f.address, 4<<10)
	case f.command == flashBlock && addressed:
		f.erase(f.address, 64<<10)
	case f.command == flashChip, f.command == flashChipToo:
		f.erase(0, flashSize)
	default:
		return
	}
	f.enabled, f.busy = false, flashBusyReads
}
