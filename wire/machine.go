package wire

// MachineListRequest is MACHINE_LIST_REQUEST.payload. A device answers with its own
// MachineSnapshot; a relay answers an operator with a MachineList.
type MachineListRequest struct{}

// MachineSnapshot is what a machine says of itself, now.
type MachineSnapshot struct {
	MachineID       string           `json:"machine_id"`
	Hostname        string           `json:"hostname"`
	Platform        string           `json:"platform"` // as in HELLO
	Arch            string           `json:"arch"`
	Capabilities    Capabilities     `json:"capabilities"`     // what it offers
	HardwareDevices []HardwareDevice `json:"hardware_devices"` // of the families that are granted
}

// MachineList is a relay's MACHINE_LIST_RESPONSE.payload.
type MachineList struct {
	Machines []ListedMachine `json:"machines"`
}

// ListedMachine is one machine of a MachineList.
type ListedMachine struct {
	MachineSnapshot
	Name   string `json:"name"` // the owner's name for it
	Online bool   `json:"online"`
	// LastActive is when it was last heard of, in seconds since 1970; null: never.
	LastActive *float64 `json:"last_active_ts"`
}
