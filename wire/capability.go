package wire

// Capability names what one side offers in HELLO and the other grants in
// HELLO_ACK. Nothing is used that was not granted on the same socket.
type Capability string

// The capabilities of protocol 1.1.
const (
	DirectoryBrowse Capability = "directory_browse" // control socket only
	Shell           Capability = "shell"
	Files           Capability = "files"
	ComputerUse     Capability = "computer_use" // never offered by a headless device
	LocalLLM        Capability = "local_llm"
	Recording       Capability = "recording" // reserved by the protocol, never offered

	HardwareSerial  Capability = "hardware_serial"
	HardwareUSB     Capability = "hardware_usb"
	HardwareGPIO    Capability = "hardware_gpio"
	HardwareI2C     Capability = "hardware_i2c"
	HardwareSPI     Capability = "hardware_spi"
	HardwarePrinter Capability = "hardware_printer"
)

// The capabilities of the extensions that exist so far.
const (
	Grants      Capability = "grants"       // ceilings in HELLO_ACK, GRANTS_UPDATE
	AuditAnchor Capability = "audit_anchor" // audit head in STATUS, AUDIT_VERIFY_REQUEST
	Streams     Capability = "streams"      // STREAM_DATA and what steers it
	Cancel      Capability = "cancel"       // CANCEL
	Terminal    Capability = "terminal"     // TERMINAL_OPEN and its kin
	Transfer    Capability = "transfer"     // TRANSFER_*: files in pieces; where files are allowed

	LocalLLMExtended Capability = "local_llm_extended" // thoughts, waiting and timings; LLM_STATUS_REQUEST, LLM_EMBED
	Privacy          Capability = "privacy"            // stubs of private files, LOCAL_LLM_TURN; where files are allowed
	LLMManage        Capability = "llm_manage"         // LLM_PULL, LLM_REMOVE, LLM_INSTALL, LLM_UNINSTALL
	Observe          Capability = "observe"            // the machine's journal and how it is doing
	Forward          Capability = "forward"            // TCP connections to what the machine reaches

	MachineFactsCapability Capability = "machine_facts" // facts in the control socket's STATUS
	Machines               Capability = "machines"      // MACHINE_LIST_REQUEST
	SettingsCapability     Capability = "settings"      // SETTINGS_GET, SETTINGS_SET: of an appliance, for its owner alone
)

// IsHardware says whether c is one of the hardware_* family.
func (c Capability) IsHardware() bool {
	return len(c) > len("hardware_") && c[:len("hardware_")] == "hardware_"
}

// HardwareCapability is the capability that an operation on a device of this
// type (the type of HELLO.hardware_devices: serial, usb, gpio, …) needs.
func HardwareCapability(deviceType string) Capability { return Capability("hardware_" + deviceType) }

// Capabilities is a set of capabilities. Nil is the empty set.
type Capabilities []Capability

// Has says whether c is in the set.
func (cs Capabilities) Has(c Capability) bool {
	for _, x := range cs {
		if x == c {
			return true
		}
	}
	return false
}

// AnyHardware says whether the set holds any capability of the hardware_* family.
func (cs Capabilities) AnyHardware() bool {
	for _, x := range cs {
		if x.IsHardware() {
			return true
		}
	}
	return false
}

// Owned is the capability on which the owner decides where c is used: what may
// run commands may have terminals, and what may use files may transfer them
// and have stubs of private ones. It is c itself for most.
func (c Capability) Owned() Capability {
	switch c {
	case Terminal:
		return Shell
	case Transfer, Privacy:
		return Files
	}
	return c
}

// Approvable says whether the owner decides on c. What is left is plumbing of
// the protocol itself (browsing, grants, anchors), which no ceiling names.
func (c Capability) Approvable() bool {
	switch c {
	case Shell, Files, ComputerUse, LocalLLM, LLMManage, Recording, Observe, Forward:
		return true
	}
	return c.IsHardware()
}

// Sensitive says whether c reaches beyond the machine's directories and devices:
// nobody gets it without somebody having named it.
func (c Capability) Sensitive() bool {
	switch c {
	case Shell, ComputerUse, Recording, Observe, Forward:
		return true
	}
	return false
}
