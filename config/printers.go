package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/v2"
)

const maxPrinters = 64

// printerName is what a printer may be called: its id is printer:NAME, and
// those of other printers begin with usb-, lp and found-.
var printerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

func setPrinters(k *koanf.Koanf, in Input, c *Config) error {
	const key, keysKey = "hardware.printers", "hardware.printer_keys"
	for _, item := range k.Strings(key) {
		name, address, ok := strings.Cut(item, "=")
		name, address = strings.TrimSpace(name), strings.TrimSpace(address)
		switch {
		case !ok || address == "":
			return &Error{Key: key, Reason: "each must be name=url"}
		case !printerName.MatchString(name), strings.HasPrefix(name, "usb-"), strings.HasPrefix(name, "lp"), strings.HasPrefix(name, "found-"):
			return &Error{Key: key, Reason: fmt.Sprintf("%q is no name for a printer: 1 to 32 letters, digits, '.', '_' and '-', and not beginning with usb-, lp or found-", name)}
		case c.printer(name) >= 0:
			return &Error{Key: key, Reason: fmt.Sprintf("two printers are called %q", name)}
		case len(c.Printers) == maxPrinters:
			return &Error{Key: key, Reason: fmt.Sprintf("at most %d", maxPrinters)}
		}
		u, err := parseURL(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return &Error{Key: key, Reason: fmt.Sprintf("%s: must be http://host[:port][/path] or https://…, without a user's name", name)}
		}
		c.Printers = append(c.Printers, Printer{Name: name, URL: u})
	}
	for _, item := range k.Strings(keysKey) {
		name, path, ok := strings.Cut(item, "=")
		i := c.printer(strings.TrimSpace(name))
		if !ok || i < 0 {
			// The item isn't repeated: who mistook the key for its file must not
			// find it in a log.
			return &Error{Key: keysKey, Reason: "each must be name=path, the name one of hardware.printers"}
		}
		file, err := expand(strings.TrimSpace(path), in.Home)
		if err != nil {
			return &Error{Key: keysKey, Reason: fmt.Sprintf("the file for %s: %v", c.Printers[i].Name, err)}
		}
		c.Printers[i].KeyFile = file
	}
	return nil
}

// printer is the index of a printer; below 0 if there is none.
func (c *Config) printer(name string) int {
	return slices.IndexFunc(c.Printers, func(p Printer) bool { return p.Name == name })
}
