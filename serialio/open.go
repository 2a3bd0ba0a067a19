package serialio

import "farhand/wire"

// Reset says what becomes of DTR and RTS when a port is opened. Many boards are
// reset by one of them; Linux raises both inside open.
type Reset int

const (
	ResetLeave Reset = iota // they stay as Linux puts them: high
	ResetAvoid              // they are lowered by the first call after the open, and stay low
	ResetPulse              // the board is reset by a pulse on both, and given time to start
)

// What opening did to the board, see wire.SerialOpened.
const (
	ResetDone     = "done"
	ResetPossible = "possible"
	ResetUnlikely = "unlikely"
	ResetNone     = "none"
)

// opened is what is said about it.
func opened(reset string, how Reset) wire.SerialOpened {
	o := wire.SerialOpened{Reset: reset}
	switch reset {
	case ResetDone:
		o.Note = "the board was reset by DTR and RTS and had 2 s to start"
	case ResetPossible:
		o.Note = "Linux raised DTR and RTS inside open, which no program can prevent: a board that takes this as a reset has restarted. They stay high when the port is closed, so the next open resets nothing"
	case ResetUnlikely:
		o.Note = "DTR and RTS were high since an earlier use, so opening changed neither"
	}
	if how == ResetAvoid && reset != ResetNone {
		o.Note += ". Both were lowered right after the open as asked, and a firmware that waits for DTR stays silent until it is raised"
	}
	return o
}
