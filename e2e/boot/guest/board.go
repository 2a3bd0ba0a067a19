// Package guest is an emulated board with a card in it: QEMU's machine virt or a
// Raspberry Pi 3B, started with what the firmware would take from that card, or a
// machine whose UEFI firmware takes it by itself.
package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"farhand/e2e/boot/card"
	"farhand/e2e/boot/emulator"
	"farhand/e2e/boot/firmware"
	"farhand/internal/qemu"
)

// Kind is a machine that QEMU emulates.
type Kind int

// The machines.
const (
	Virt Kind = iota
	Pi3B
	Generic // virt with UEFI firmware and an NVMe disk
	PC      // q35 with the same, Secure Boot and a SATA disk
)

func (k Kind) String() string { return [...]string{"virt", "raspi3b", "generic", "pc"}[k] }

// memory of a board, in MiB: as much as the smallest that the image is for. The
// Pi 3B can't have less than it has.
func (k Kind) memory() int { return [...]int{512, 1024, 512, 512}[k] }

// Board is a machine without power. It isn't safe for concurrent use.
type Board struct {
	Kind    Kind
	Program emulator.Program
	// Firmware is what starts a kind that has one of its own.
	Firmware emulator.Firmware
	Serial   string // 16 hexadecimal digits, as of a Raspberry Pi's chip
	Dir      string // for sockets and files: a short path
	Console  io.Writer
	// Paced makes the machine's clock go by what its processors have done, not by
	// this machine's clock: then a machine whose host has other work is slow and
	// doesn't know it, where else each of its timeouts comes too soon.
	Paced bool
	// Extra are more of QEMU's arguments, and Sockets the character devices among
	// them.
	Extra   []string
	Sockets []string
}

// ports are the character devices of the board's serial ports.
var ports = []string{"serial0", "serial1"}

// header is the port that people use: on a Pi 3 the mini UART is on the header,
// and the other one speaks to the Bluetooth chip.
func (k Kind) header() int { return [...]int{0, 1, 0, 0}[k] }

// Power turns the board on with a card in it. It runs until the guest turns it
// off or restarts it, or until Off or Cut.
func (b *Board) Power(ctx context.Context, c *card.Card, start firmware.Start) (*Machine, error) {
	dir, err := os.MkdirTemp(b.Dir, "on-")
	if err != nil {
		return nil, err
	}
	m, err := b.power(ctx, c, start, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("turning the %s on: %w", b.Kind, err), os.RemoveAll(dir))
	}
	return m, nil
}

func (b *Board) power(ctx context.Context, c *card.Card, start firmware.Start, dir string) (*Machine, error) {
	var boot firmware.Boot
	if !b.Kind.uefi() {
		var err error
		if boot, err = b.firmware(ctx, c, start, dir); err != nil {
			return nil, err
		}
	}
	inserted, err := c.Insert(ctx, dir)
	if err != nil {
		return nil, err
	}
	args, err := b.arguments(ctx, dir, boot, start)
	if err != nil {
		return nil, err
	}
	args = append(args, b.drive(inserted)...)
	m := &Machine{Boot: boot, Card: inserted, Console: NewText(), dir: dir, header: ports[b.Kind.header()]}
	sockets := append(ports[:len(ports):len(ports)], b.Sockets...)
	m.process, err = qemu.Start(ctx, qemu.Options{
		Program: b.Program.Path, Leading: b.Program.Args, Args: append(args, b.Extra...),
		Env: b.Program.Environ(), Dir: dir, Sockets: sockets, Events: m.event,
	})
	if err != nil {
		return nil, err
	}
	for _, name := range ports {
		to := io.Discard
		if name == m.header {
			to = m.sink(b.Console)
		}
		m.copying.Go(func() { _, _ = io.Copy(to, m.process.Conn(name)) }) // ends with the machine
	}
	return m, nil
}

// firmware reads the card as the firmware does.
func (b *Board) firmware(ctx context.Context, c *card.Card, start firmware.Start, dir string) (firmware.Boot, error) {
	board := firmware.Virt()
	if b.Kind == Pi3B {
		board = firmware.Pi3B()
	}
	files := func(n int) (fs.FS, error) { return c.Files(ctx, n, filepath.Join(dir, "fat"+strconv.Itoa(n))) }
	boot, err := firmware.Run(files, board, start)
	if err != nil {
		return boot, err
	}
	for n := 1; n <= 3; n++ {
		if err := os.RemoveAll(filepath.Join(dir, "fat"+strconv.Itoa(n))); err != nil {
			return boot, err
		}
	}
	return boot, nil
}

// arguments of QEMU. Every device is named: the machine has no other.
func (b *Board) arguments(ctx context.Context, dir string, boot firmware.Boot, start firmware.Start) ([]string, error) {
	args := append(b.machine(""), b.Program.Data...)
	args = append(args, "-no-reboot", "-serial", "chardev:"+ports[0], "-serial", "chardev:"+ports[1])
	if b.Kind.uefi() {
		flash, err := b.flash()
		return append(args, flash...), err
	}
	if boot.DTB == nil {
		tree := filepath.Join(dir, "machine.dtb")
		if err := b.dump(ctx, tree); err != nil {
			return nil, err
		}
		data, err := os.ReadFile(tree)
		if err != nil {
			return nil, err
		}
		boot.DTB = data
	}
	tree, err := firmware.DeviceTree(ctx, boot.DTB, boot.Overlays, firmware.Facts{
		Serial: b.Serial, Partition: boot.Partition, Tryboot: start.Tryboot, BuildTimestamp: bootloaderTime,
	})
	if err != nil {
		return nil, err
	}
	cmdline := boot.Cmdline
	if b.Kind == Pi3B {
		// QEMU's Pi has no watchdog timer: to start it resets the machine at once.
		cmdline += " systemd.watchdog_sec=0"
	}
	for name, data := range map[string][]byte{"kernel": boot.Kernel, "initrd": boot.Initrd, "board.dtb": tree} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	args = append(args,
		"-kernel", filepath.Join(dir, "kernel"), "-initrd", filepath.Join(dir, "initrd"), "-dtb", filepath.Join(dir, "board.dtb"),
		"-append", cmdline,
	)
	return args, nil
}

// bootloaderTime is when the emulated bootloader was built: late enough to know
// about trials (2025-01-01).
const bootloaderTime = 1735689600

// machine are the arguments by which QEMU makes the machine, with more of -M.
func (b *Board) machine(more string) []string {
	accel := []string{"-accel", "tcg,thread=multi"}
	if b.Paced {
		accel = []string{"-accel", "tcg,thread=single", "-icount", "shift=" + strconv.Itoa(pace)}
	}
	args := append(accel, "-no-user-config", "-nodefaults", "-display", "none", "-m", strconv.Itoa(b.Kind.memory()))
	switch b.Kind {
	case Pi3B:
		return append(args, "-M", "raspi3b"+more)
	case PC:
		// The firmware keeps its variables to itself by the processor's SMM.
		return append(args, "-M", "q35,smm=on"+more, "-cpu", "qemu64", "-smp", "2", "-global", "driver=cfi.pflash01,property=secure,value=on")
	}
	return append(args, "-M", "virt"+more, "-cpu", "cortex-a72", "-smp", "2")
}

// pace is the base-2 logarithm of the nanoseconds that an instruction of a paced
// machine takes: 250 million a second, which is less than one core emulates.
const pace = 2

// dump has QEMU write down the device tree of the machine.
func (b *Board) dump(ctx context.Context, file string) error {
	return b.Program.Run(ctx, b.machine(",dumpdtb="+file)...)
}

// drive wires the card: a Pi has a slot for it, the others a disk.
func (b *Board) drive(c *card.Inserted) []string {
	if b.Kind == Pi3B {
		return []string{"-drive", "if=sd," + c.Drive()}
	}
	device := map[Kind]string{Virt: "virtio-blk-pci", Generic: "nvme,serial=card", PC: "ide-hd"}[b.Kind]
	return []string{"-drive", "if=none,id=card," + c.Drive(), "-device", device + ",drive=card"}
}

// NewSerial makes up the serial number of a chip.
func NewSerial() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "10000000" + hex.EncodeToString(b[:])
}

// Network is QEMU's user network with one card in the board. What the guest
// sends to 10.0.2.2 comes to this machine's loopback; ports are "tcp::2222-:22".
func Network(kind Kind, ports ...string) []string {
	net := "user,id=net"
	for _, p := range ports {
		net += ",hostfwd=" + p
	}
	if kind == Pi3B {
		return []string{"-netdev", net, "-device", "usb-hub,port=1,id=hub", "-device", "usb-net,netdev=net,port=1.1"}
	}
	device := "virtio-net-pci"
	if kind == PC {
		device = "e1000e"
	}
	return []string{"-netdev", net, "-device", device + ",netdev=net,romfile="}
}

// HostAddress is this machine, as a guest sees it.
const HostAddress = "10.0.2.2"
