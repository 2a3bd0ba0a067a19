package wire

// MachineFacts is STATUS.facts on the control socket, with capability
// machine_facts: how the machine below the daemon is, for its owner. Empty
// fields are what it doesn't tell.
type MachineFacts struct {
	// ClockState is what its clock stands on: synchronised, hint, rtc, saved,
	// floor, unset or unsynchronised.
	ClockState string   `json:"clock_state,omitempty"`
	MDNSName   string   `json:"mdns_name,omitempty"` // as claimed in its network
	Addresses  []string `json:"addresses,omitempty"`
	Wifi       string   `json:"wifi,omitempty"`
	// Power says in words whether its supply or temperature limits it; "ok".
	Power     string `json:"power,omitempty"`
	WeakPower bool   `json:"weak_power,omitempty"`

	Slot         string `json:"slot,omitempty"`          // a or b
	SlotSource   string `json:"slot_source,omitempty"`   // bootloader or default
	Bootloader   int64  `json:"bootloader,omitempty"`    // when it was built, seconds since 1970
	NotUpdatable string `json:"not_updatable,omitempty"` // why no update could be tried on the other slot
	WatchdogS    int    `json:"watchdog_s,omitempty"`    // seconds after which the hardware resets a machine that hangs
	NewBoard     bool   `json:"new_board,omitempty"`     // the card came from another board, so this is a new identity
	Degraded     string `json:"degraded,omitempty"`      // why nothing can be kept
}

// The most that is told.
const (
	maxFact          = 300 // characters
	maxFactAddresses = 16
)

// Cleaned is f as it may be kept and shown: texts without control and format
// characters, and no longer than is told.
func (f MachineFacts) Cleaned() MachineFacts {
	for _, text := range []*string{&f.ClockState, &f.MDNSName, &f.Wifi, &f.Power, &f.Slot, &f.SlotSource, &f.NotUpdatable, &f.Degraded} {
		*text = Clean(*text, maxFact)
	}
	addresses := f.Addresses[:min(len(f.Addresses), maxFactAddresses)]
	f.Addresses = nil
	for _, a := range addresses {
		f.Addresses = append(f.Addresses, Clean(a, maxFact))
	}
	return f
}
