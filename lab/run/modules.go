package main

import (
	"path"

	"farhand/lab/kernel"
	"farhand/lab/proto"
)

// loadedModules are in the guest from the start, with their parameters.
var loadedModules = []proto.Module{
	{Name: "configfs"},
	{Name: "gpio_sim"},
	{Name: "i2c_dev"},
	// The old scheme enumerates with one reset less. Gadgets don't mind.
	{Name: "usbcore", Params: "old_scheme_first=1"},
	{Name: "xhci_pci"},
	// Several controllers, so that several gadgets can be plugged in at once.
	{Name: "dummy_hcd", Params: "num=4"},
	{Name: "usb_f_acm"},
	{Name: "usb_f_serial"},
	{Name: "usb_f_hid"},
	{Name: "usb_f_ss_lb"},
	{Name: "usb_f_printer"},
	{Name: "cdc_acm"},
	{Name: "ftdi_sio"},
	{Name: "usblp"},
	{Name: "usbhid"},
	{Name: "hid_generic"},
}

// laterModules lie in the guest for tests to load with parameters of their own
// (lab/guest).
var laterModules = []string{"i2c_stub", "parport_pc", "spi_butterfly", "usbtest"}

func names(modules []proto.Module) []string {
	var all []string
	for _, m := range modules {
		all = append(all, m.Name)
	}
	return all
}

// toLoad are the modules to load at boot, in order, by their paths in the
// guest: all but the later ones, which come last and are what nothing depends
// on.
func toLoad(modules []kernel.Module) []proto.Module {
	params := make(map[string]string)
	for _, m := range loadedModules {
		params[m.Name] = m.Params
	}
	later := make(map[string]bool)
	for _, name := range laterModules {
		later[name] = true
	}
	var all []proto.Module
	for _, m := range modules {
		if !later[m.Name] {
			all = append(all, proto.Module{Name: m.Name, Path: path.Join(proto.ModulesDir, m.Name+".ko"), Params: params[m.Name]})
		}
	}
	return all
}
