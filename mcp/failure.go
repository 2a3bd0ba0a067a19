package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/wire"
)

// failure is the result of a tool that failed: its code, what happened, and what
// to do next, in the words of these tools.
func (s *Server) failure(ctx context.Context, name string, err error) *mcp.CallToolResult {
	if ctx.Err() != nil { // nobody waits for it any more
		err = wire.Errorf(wire.Cancelled, "%s was cancelled", name)
	}
	e := described(err)
	switch e.Code {
	case wire.CapabilityNotGranted, wire.HardwareNotGranted:
		s.look() // what is granted has changed since it was last looked at
	case wire.InternalError:
		s.log.Warn("tool failed", "tool", name, "err", err.Error())
	}
	text := string(e.Code)
	if e.Message != "" && e.Message != text {
		text += ": " + e.Message
	}
	next := hint(e)
	if next != "" {
		text += "\nNext: " + next
	}
	about := map[string]any{"code": e.Code, "message": e.Message}
	if next != "" {
		about["hint"] = next
	}
	if len(e.Details) > 0 {
		about["details"] = e.Details
	}
	// Not in structuredContent, which has to fit the tool's output schema.
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{"farhand/error": about},
		Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: true,
	}
}

// described is an error as it is told. What has no code is our own fault or the
// link's, and its text is all there is.
func described(err error) *wire.Error {
	var e *wire.Error
	var code wire.Code
	switch {
	case errors.As(err, &e):
		own := *e
		own.Message = err.Error()
		return &own
	case errors.As(err, &code):
		return &wire.Error{Code: code, Message: err.Error()}
	}
	return &wire.Error{Code: wire.InternalError, Message: err.Error()}
}

// hint says what to do next about a failure.
func hint(e *wire.Error) string {
	text := func(key string) string { s, _ := e.Details[key].(string); return s }
	list := func(key string) string { return strings.Join(wire.Texts(e.Details[key]), ", ") }
	switch e.Code {
	case wire.InvalidArgument:
		if h := spoken(text("hint")); h != "" {
			return h
		}
		return "correct the arguments by the tool's input schema and call it again"
	case wire.MachineNotAttached, wire.MachineUnreachable:
		if at := text("last_seen"); at != "" {
			return "it was last seen at " + at + "; list_machines shows the machines that there are and which are online"
		}
		return "list_machines shows the machines that there are and which are online"
	case wire.MachineAmbiguous:
		if c := list("candidates"); c != "" {
			return "set machine to one of: " + c
		}
		return "set machine to a name that list_machines shows"
	case wire.HardwareAmbiguous:
		if c := list("candidates"); c != "" {
			return "set device to one of: " + c
		}
		return "set device to an id that list_devices shows"
	case wire.HardwareNotFound:
		if e.Details["line"] != nil || e.Details["pin"] != nil {
			return `gpio_info lists the chip's lines; a pin of the header is written "pin 11"`
		}
		return "list_devices shows what is wired to the machine and each device's id"
	case wire.HardwareBusy:
		if h := spoken(text("hint")); h != "" {
			return h
		}
		return "somebody else has the device: try again later, or release_device if it is held by an earlier call of yours"
	case wire.DeviceGone:
		return "it was unplugged; plugged in again it has the same id (list_devices)"
	case wire.CapabilityNotGranted:
		return allow(text("ceiling"), text("capability"))
	case wire.HardwareNotGranted:
		return allow(text("ceiling"), text("device"))
	case wire.PathOutsideAllowedRoot, wire.PathNotFound:
		if h := text("hint"); h != "" {
			return spoken(h)
		}
		if e.Code == wire.PathNotFound {
			return "list_files shows what is there"
		}
		if c := list("roots"); c != "" {
			return "only these directories and what lies in them can be reached: " + c
		}
		return "only paths below a root that list_machines shows can be reached"
	case wire.PathNotEmpty:
		return "set recursive to remove a directory with everything in it"
	case wire.PathExists:
		return "set overwrite to replace what is there"
	case wire.FileTooLarge:
		return "read it in ranges (offset and length), or write less at once"
	case wire.OpUnconfirmed:
		return "it may have happened: look before repeating it"
	case wire.CommandTimeout:
		if e.Details["unanswered"] == true {
			return "it may have begun: list_machines shows whether the machine is online"
		}
	case wire.FeatureNotSupported:
		if strings.HasPrefix(text("op"), "TERMINAL_") {
			return "the machine has no terminals, it is older: run_command runs what ends by itself"
		}
	case wire.ShimOverloaded, wire.RequestTimeout, wire.LocalLLMBusy:
		return "the machine is busy: try again in a moment"
	case wire.PrivacyModeBlocked:
		if text("reason") == "private" {
			return "its content never leaves the machine: file_stub says what it is like, and ask_files has the machine's own model work on it"
		}
		return "the machine's owner keeps some files private, which rules this out: go about it in another way, or tell the user"
	case wire.AnswerNotReleased:
		return "the machine's owner looks at answers about private files before they leave: tell the user"
	case wire.StubStale:
		return "the file changed meanwhile: call it again"
	case wire.ModelNotAvailable:
		return "leave model out, or take one that list_models shows"
	case wire.AuthFailed:
		return "the token has expired or was revoked: its owner has to sign in or connect again"
	case client.RelayUnreachable, client.RelayUntrusted:
		return "the relay itself can't be reached: tell the user"
	case wire.DiskFull:
		return "free some space on the machine, or write elsewhere"
	}
	return spoken(text("hint"))
}

// allow says who can lift the ceiling that refused something.
func allow(ceiling, what string) string {
	if what == "" {
		what = "it"
	}
	switch ceiling {
	case "config":
		return fmt.Sprintf("the machine's own configuration doesn't allow %s: tell the user", what)
	case "approval":
		return fmt.Sprintf("the machine's owner doesn't allow %s: ask the user to run farhand grants", what)
	case "token":
		return fmt.Sprintf("this connection may not use %s: ask the user for one that may", what)
	}
	return "ask the user to allow it"
}

// spoken is what a device says to do, which speaks of operations and their
// fields, in the words of these tools.
func spoken(hint string) string {
	return strings.NewReplacer(
		"GPIO_CONFIGURE", "gpio_configure", "GPIO_INFO", "gpio_info", "I2C_SCAN", "i2c_scan", "I2C_SMBUS", "i2c_smbus",
		"I2C_TRANSFER", "i2c_transfer", "USB_DESCRIBE", "usb_describe", "USB_RESET", "usb_reset", "RELEASE", "release_device",
		"PRINTER_JOIN", "farhand print join", "PRINTER_FILES", "printer_files", "PRINTER_COMMAND", "printer_gcode",
		"SERIAL_CONTROL", "serial_control", "GPIO_WATCH", "gpio_watch", "PRINTER_WATCH", "printer_status",
	).Replace(hint)
}
