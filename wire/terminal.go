package wire

import "time"

// Figures of terminals. They are the extension's own.
const (
	MaxTerminalInput = 64 << 10  // bytes of data in one TERMINAL_INPUT
	MaxTerminalSide  = 4096      // columns, and rows
	TerminalRing     = 1 << 20   // bytes that are kept of what a terminal shows
	TerminalPipeRing = 512 << 10 // bytes that are kept of each output without one
	MaxTerminalRoom  = 512 << 10 // bytes of credit that a viewer has at most
)

// Size of a terminal for which the request names none: what a VT100 has.
const (
	DefaultColumns = 80
	DefaultRows    = 24
)

// TerminalOpen is TERMINAL_OPEN.payload: a program on a terminal of its own, or,
// without one, on pipes. At most one of Command and Argv is given; with neither
// it is the user's shell, which needs a terminal.
type TerminalOpen struct {
	Command *string           `json:"command,omitempty"`
	Argv    []string          `json:"argv,omitempty"`
	Shell   string            `json:"shell,omitempty"` // as EXECUTE_COMMAND has it
	Cwd     *string           `json:"cwd,omitempty"`   // default: the allowed root
	Env     map[string]string `json:"env,omitempty"`
	// PTY says whether it is a terminal, which is the default. Without one
	// standard output and standard error are two streams.
	PTY     *bool  `json:"pty,omitempty"`
	Columns int    `json:"columns,omitempty"`
	Rows    int    `json:"rows,omitempty"`
	Term    string `json:"term,omitempty"` // TERM; default xterm-256color
	Credit  int    `json:"credit,omitempty"`
}

// HasPTY says whether a terminal is wanted.
func (t TerminalOpen) HasPTY() bool { return t.PTY == nil || *t.PTY }

// TerminalAttach is TERMINAL_ATTACH.payload: the sender becomes one more viewer
// of a terminal. Each has streams of its own, which carry the same.
type TerminalAttach struct {
	Terminal string `json:"terminal"`
	// From is where the sender's screen stands; absent: it has none.
	From   *TerminalOffsets `json:"from,omitempty"`
	Credit int              `json:"credit,omitempty"`
}

// TerminalOffsets are places in what a terminal has written: bytes from its
// beginning on.
type TerminalOffsets struct {
	Out int64 `json:"out"`
	Err int64 `json:"err"` // of standard error, without a terminal
}

// TerminalStreams are the streams of one viewer.
type TerminalStreams struct {
	Out string `json:"out"`
	Err string `json:"err,omitempty"` // without a terminal
}

// TerminalOpened is TERMINAL_OPENED.payload.
type TerminalOpened struct {
	Terminal string          `json:"terminal"` // 128 random bits in hex
	PTY      bool            `json:"pty"`
	Streams  TerminalStreams `json:"streams"`
	// From is where the streams begin. What TERMINAL_ATTACH named, if Resumed,
	// and else the first line that is still there: clear the screen.
	From    TerminalOffsets `json:"from"`
	Resumed bool            `json:"resumed"`
}

// TerminalInput is TERMINAL_INPUT.payload: bytes for the program. A writer
// counts them from 0 on, so that what is sent twice is typed once.
type TerminalInput struct {
	Terminal string `json:"terminal"`
	Writer   string `json:"writer"` // the sender's own name for itself, 1 to 64 characters
	Offset   int64  `json:"offset"`
	Data     []byte `json:"data,omitempty"` // base64
	EOF      bool   `json:"eof,omitempty"`  // nothing comes after Data; without a terminal only
}

// TerminalTaken is TERMINAL_INPUT_RESPONSE.payload: the offset to go on from. It
// is less than what was sent if the program doesn't read.
type TerminalTaken struct {
	Next int64 `json:"next"`
}

// TerminalResize is TERMINAL_RESIZE.payload.
type TerminalResize struct {
	Terminal string `json:"terminal"`
	Columns  int    `json:"columns"`
	Rows     int    `json:"rows"`
	// Force has the program told of its size (SIGWINCH) though it be the same, so
	// that it draws its screen anew.
	Force bool `json:"force,omitempty"`
}

// TerminalClose is TERMINAL_CLOSE.payload: the program is hung up, and what it
// started is ended. Of a terminal that has ended it is no error.
type TerminalClose struct {
	Terminal string `json:"terminal"`
}

// TerminalListResponse is TERMINAL_LIST_RESPONSE.payload: the terminals that the
// sender may attach, the oldest first, those too that ended a short while ago.
type TerminalListResponse struct {
	Terminals []TerminalInfo `json:"terminals"`
}

// TerminalInfo is one terminal.
type TerminalInfo struct {
	Terminal string          `json:"terminal"`
	Program  string          `json:"program"` // its name, never its arguments
	PTY      bool            `json:"pty"`
	Columns  int             `json:"columns,omitempty"`
	Rows     int             `json:"rows,omitempty"`
	Cwd      string          `json:"cwd"` // where it was started
	Session  string          `json:"session"`
	OpenedAt time.Time       `json:"opened_at"`
	Viewers  int             `json:"viewers"`
	Next     TerminalOffsets `json:"next"` // how much it has written
	// Ended is set once it is over.
	Ended *TerminalEnd `json:"ended,omitempty"`
}

// TerminalEnd says when and why a terminal ended.
type TerminalEnd struct {
	StreamEnd
	At time.Time `json:"at"`
}

// Why a terminal ended beside the reasons of streams (closed, grant_revoked,
// session_ended, daemon_stopping).
const (
	TerminalExited    = "exited"           // the program ended by itself; exit_code
	TerminalLost      = "command_lost"     // what runs commands on the machine stopped, and the program with it
	TerminalRestarted = "daemon_restarted" // the daemon was started anew, and nobody kept the terminal meanwhile
)
