package serialio

// meddler is a program that is known to get in the way of serial ports.
type meddler struct {
	name string // as in /proc/<pid>/comm
	hint string // what to do
}

// meddlers are those programs. Neither is part of the appliance's image.
func meddlers() []meddler {
	return []meddler{
		{"ModemManager", "ModemManager sends AT commands to ports that are new to it: stop it (systemctl disable --now ModemManager), or give the device the udev property ID_MM_DEVICE_IGNORE=1"},
		{"brltty", "brltty takes FTDI, CP210x and CH340 bridges away half a second after they were plugged in, as if they were braille displays: remove it (apt remove brltty), or its udev rule"},
	}
}
