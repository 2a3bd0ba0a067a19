package bus

import (
	"context"
	"path/filepath"
	"strings"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/wire"
)

// I2C finds I2C buses in /sys/class/i2c-dev. The zero value looks at this
// machine.
type I2C struct{ FS sysfs.FS }

// SPI finds SPI chip selects in /sys/class/spidev. The zero value looks at this
// machine.
type SPI struct{ FS sysfs.FS }

var (
	_ device.Driver = I2C{}
	_ device.Driver = SPI{}
)

// Type is "i2c".
func (I2C) Type() string { return device.I2C }

// Type is "spi".
func (SPI) Type() string { return device.SPI }

// Probe lists the buses: i2c:N.
func (d I2C) Probe(ctx context.Context) ([]device.Descriptor, error) {
	return probe(ctx, d.FS, "class/i2c-dev", "i2c-", func(p *device.Descriptor, number string) {
		adapter := sysfs.Real(filepath.Join(p.SysPath, "device"))
		p.Type = device.I2C
		p.ID = "i2c:" + number
		p.Desc = "I2C bus " + number
		if name := sysfs.Attr(p.SysPath, "name"); name != "" {
			p.Desc += " (" + name + ")"
		}
		p.Driver = sysfs.LinkName(filepath.Dir(adapter), "driver")
		p.Aliases = append(p.Aliases, "i2c-"+number)
	})
}

// Probe lists the chip selects: spi:B.C.
func (d SPI) Probe(ctx context.Context) ([]device.Descriptor, error) {
	return probe(ctx, d.FS, "class/spidev", "spidev", func(p *device.Descriptor, number string) {
		p.Type = device.SPI
		p.ID = "spi:" + number
		p.Desc = "SPI bus and chip select " + number
		p.Driver = sysfs.LinkName(sysfs.Real(filepath.Join(p.SysPath, "device")), "driver")
		p.Aliases = append(p.Aliases, "spidev"+number)
	})
}

// probe lists the members of a class whose names are a prefix and a number.
func probe(ctx context.Context, fs sysfs.FS, class, prefix string, fill func(p *device.Descriptor, number string)) ([]device.Descriptor, error) {
	names, err := fs.List(class)
	if err != nil {
		return nil, err
	}
	var all []device.Descriptor
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		number, ok := strings.CutPrefix(name, prefix)
		dir := sysfs.Real(filepath.Join(fs.Dir(class), name))
		if !ok || dir == "" || strings.Trim(number, "0123456789.") != "" {
			continue
		}
		p := device.Descriptor{
			HardwareDevice: wire.HardwareDevice{Port: "/dev/" + name, Aliases: []string{"/dev/" + name}},
			Node:           fs.Node(name), SysPath: dir, Instance: sysfs.Instance(dir),
		}
		p.Available, p.Reason = sysfs.Access(p.Node)
		fill(&p, number)
		all = append(all, p)
	}
	return all, nil
}
