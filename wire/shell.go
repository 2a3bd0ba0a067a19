package wire

// ExecuteCommand is EXECUTE_COMMAND.payload: exactly one of Command and Argv.
type ExecuteCommand struct {
	Command        *string           `json:"command,omitempty"`
	Argv           []string          `json:"argv,omitempty"`
	Shell          string            `json:"shell,omitempty"` // auto, bash, sh, zsh, pwsh, powershell, cmd
	Cwd            *string           `json:"cwd,omitempty"`   // default: the allowed root
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
}

// CommandResult is COMMAND_RESULT.payload.
type CommandResult struct {
	Stdout          string  `json:"stdout"`
	Stderr          string  `json:"stderr"`
	ExitCode        int     `json:"exit_code"` // -1 on timeout, -signo for death by signal
	TimedOut        bool    `json:"timed_out"`
	DurationSeconds float64 `json:"duration_seconds"` // three decimals
	OutputTruncated bool    `json:"output_truncated"`
}
