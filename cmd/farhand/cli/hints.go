package cli

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"farhand/client"
	"farhand/internal/pinned"
	"farhand/wire"
)

// hint says what to do next about a code, if there is something to do.
func (a *app) hint(code wire.Code, details map[string]any) string {
	text := func(key string) string { s, _ := details[key].(string); return s }
	switch code {
	case client.RelayUnreachable:
		return "is the relay running and the URL right? farhand login URL sets another one"
	case client.RelayUntrusted:
		return "if this relay made its own certificate: farhand login URL --ca-sha256 HEX, with the HEX that farhand-relay init printed"
	case wire.AuthFailed:
		if a.verb == "login" {
			if a.setup {
				return "the relay prints a new one at its start as long as it has no owner; farhand-relay owner add NAME prints one for another owner"
			}
			return "check name and passphrase, or the token"
		}
		return "the login has expired or was revoked: farhand login URL"
	case wire.MachineUnreachable:
		if at, err := time.Parse(time.RFC3339, text("last_seen")); err == nil {
			return "it was last seen " + a.age(at) + "; farhand machines shows which are online"
		}
		return "farhand machines shows which are online and when the others were last seen"
	case wire.MachineNotAttached:
		if details["machines"] == 0 {
			return "start farhandd on one and approve the code that it shows: farhand approve CODE"
		}
		if list := wire.Texts(details["candidates"]); len(list) > 0 {
			return "one of: " + strings.Join(list, ", ")
		}
		if details["group"] != nil {
			return "farhand label MACHINE LABEL gives a machine one"
		}
		if a.ofDevices() {
			return "farhand machines shows which are paired, and farhand devices how what is wired to them is called"
		}
		return "farhand machines shows which are paired"
	case rateLimited:
		if details["limit_per_second"] != nil {
			return "it is this login or token that asks too fast: slower, or a token of its own for each program"
		}
	case loginRequired:
		return "sign in with your own name and passphrase: farhand login URL"
	case wire.MachineAmbiguous, wire.HardwareAmbiguous:
		if list := wire.Texts(details["candidates"]); len(list) > 0 {
			hint := "one of: " + strings.Join(list, ", ")
			if code == wire.MachineAmbiguous && details["default"] == false {
				hint += "; farhand default MACHINE sets the one that is meant where none is named"
			}
			return hint
		}
		if code == wire.MachineAmbiguous {
			return "name the machine as farhand machines shows it"
		}
		return "name the device as farhand devices shows it"
	case wire.CapabilityNotGranted:
		return ceilingHint(text("ceiling"), text("capability"), first(text("machine"), "MACHINE"))
	case wire.HardwareNotGranted:
		return notGrantedHint(text("ceiling"), text("device"), text("line"), first(text("machine"), "MACHINE"))
	case wire.PathNotFound:
		if a.verb == "put" || a.verb == "cp" {
			return "-p makes the missing directories above it"
		}
	case notFound:
		if a.verb == "approve" {
			return "compare it with the one that the machine shows just now: a code is good for an hour, and then there is another"
		}
	case wire.PathOutsideAllowedRoot:
		if text("ceiling") == "token" {
			return "your token is for other directories: its owner can make another with farhand token create"
		}
		if list := wire.Texts(details["roots"]); len(list) > 0 {
			return "offered are: " + strings.Join(list, ", ")
		}
		return "only paths below the directories that the machine offers can be reached"
	case wire.PrivacyModeBlocked:
		if text("reason") == "private" {
			return "farhand stub says what may be known of it, and farhand ask has the machine's own model work on it"
		}
	case wire.FileTooLarge:
		if limit, ok := number(details["max_file_size_bytes"]); ok {
			return fmt.Sprintf("the limit is %s; limits.max_file_size_bytes on the device sets it, up to %s a write", size(limit), size(wire.MaxBinary))
		}
	case wire.DiskFull:
		if text("reason") == "quota" {
			return "the quota of the daemon's user on the machine is used up: make room, or raise it"
		}
		return "make room on the machine: farhand rm, or df -h there; what had come is kept, and the same command goes on with it"
	case wire.ReadOnlyDisk:
		return "the machine's disk is mounted read-only, after a fault perhaps: dmesg there says why"
	case wire.PathNotAllowed:
		return "the daemon's user on the machine may not do that there: chown or chmod the directory"
	case wire.SourceChanged:
		return "something writes to the file: copy it again when that is done"
	case wire.TransferMismatch:
		return "what came differed and was thrown away: copy it again"
	case wire.OpUnconfirmed:
		return "look whether it happened before you repeat it"
	case wire.FeatureNotSupported:
		if strings.HasPrefix(text("op"), "TERMINAL_") {
			return "the daemon on the machine is older and has no terminals: farhand exec without --stdin runs a command there all the same"
		}
		if strings.HasPrefix(text("op"), "SETTINGS_") {
			return "only an appliance has settings, a machine that runs Farhand's own image"
		}
		if strings.HasPrefix(text("op"), "LLM_") {
			return "its configuration doesn't offer a language model (llm.enabled), or its daemon is older"
		}
	case wire.InternalError:
		if text("reason") == "is_a_directory" {
			return "farhand ls shows what is in a directory, farhand get copies all of it"
		}
	case wire.CommandTimeout:
		if details["unanswered"] == true {
			return "it may have begun: farhand terminals shows what runs, farhand machines whether the machine is online"
		}
	case wire.ShimOverloaded:
		return "the machine is busy: try again in a moment"
	case wire.PathExists:
		return "use --force to replace it"
	case wire.PathNotEmpty:
		return "use -r to remove a directory with what is in it"
	case wire.HardwareNotFound:
		if details["line"] != nil || details["pin"] != nil {
			return "farhand gpio info lists the lines; a pin of the header is written \"pin 11\""
		}
		return "farhand devices shows what is wired to the machine"
	case wire.HardwareBusy:
		return busyHint(text("holder"), text("consumer"), spoken(text("hint")))
	case wire.DeviceGone:
		return "plugged in again it has the same id: repeat the command then"
	case wire.StreamNotFound:
		return "the daemon was started anew, or nobody received the stream for too long: watch again"
	case wire.SessionNotFound:
		return "farhand sessions lists those there are"
	}
	return spoken(text("hint"))
}

// ofDevices says whether the verb is for what is wired to a machine, where a word that
// is no machine may have been meant for a device.
func (a *app) ofDevices() bool {
	words := strings.Fields(a.path)
	return len(words) > 1 && slices.Contains([]string{"serial", "gpio", "i2c", "spi", "usb", "print", "release"}, words[1])
}

// spoken is what a device says to do, which speaks of operations and their
// fields, in the words of this command.
func spoken(hint string) string {
	return strings.NewReplacer(
		`GPIO_CONFIGURE with direction "in"`, "farhand gpio get LINE --pull none",
		"GPIO_INFO", "farhand gpio info", "I2C_SCAN", "farhand i2c scan", "I2C_SMBUS", "farhand i2c smbus",
		"I2C_TRANSFER", "farhand i2c transfer", "USB_DESCRIBE", "farhand usb describe", "USB_RESET", "farhand usb reset", "RELEASE", "farhand release",
		"PRINTER_JOIN", "farhand print join", "PRINTER_FILES", "farhand print files", "PRINTER_COMMAND", "farhand print gcode",
		"SERIAL_CONTROL", "farhand serial control", "detach_kernel_driver", "--detach", "force:true", "--force",
		"split:true", "--split", "poll_seconds", "--poll", "cs none", "--cs none",
		"name the interface and the endpoint", "name the interface with -i and the endpoint with -e; farhand usb describe lists them",
	).Replace(hint)
}

// busyHint says who has a device: another login, or something on the machine.
func busyHint(holder, consumer, hint string) string {
	switch {
	case consumer != "" && hint != "":
		return "used by " + consumer + ": " + hint
	case consumer != "":
		return "used by " + consumer
	case holder != "":
		return "held by " + shortIDs([]string{holder})[0] + "; farhand release MACHINE DEVICE gives back what you hold yourself"
	}
	return hint
}

// notGrantedHint says how a device or a line of it can be allowed.
func notGrantedHint(ceiling, device, line, machine string) string {
	switch ceiling {
	case "approval":
		pattern := first(device, "PATTERN")
		if line != "" {
			pattern += ";lines=" + line
		}
		return "its owner allows it with farhand grants " + machine + " --add-device '" + pattern + "'"
	case "config":
		return "the machine's own configuration does not allow it"
	case "token":
		return "your token does not reach it: its owner can make another with farhand token create"
	case "session":
		return "the session was opened without it"
	}
	return ""
}

// untrustedHint says what to do about a certificate, by what is wrong with it.
func (a *app) untrustedHint(err error) string {
	var host x509.HostnameError
	switch {
	case errors.As(err, &host):
		return "use a name that the certificate is for, as it stands in the links that the relay prints"
	case errors.Is(err, pinned.ErrPin):
		return "compare the pin with what farhand-relay init prints on the relay's host; if they agree, something else answers here"
	}
	return a.hint(client.RelayUntrusted, nil)
}

func ceilingHint(ceiling, capability, machine string) string {
	if capability == "" {
		capability = "it"
	}
	switch ceiling {
	case "config":
		if capability == string(wire.Shell) {
			return "the machine's own configuration turns the shell on: shell.enabled = true"
		}
		if capability == string(wire.Observe) {
			return "the machine's own configuration turns it off, or its daemon is older: observe.enabled = true"
		}
		if capability == string(wire.Forward) {
			return "the machine's own configuration names what may be reached: forward.allow = [\"127.0.0.1:80\"]"
		}
		return "the machine's own configuration does not allow " + capability
	case "approval":
		return "its owner allows it with farhand grants " + machine + " --add " + capability
	case "token":
		return "your token does not carry " + capability + ": its owner can make another with farhand token create"
	case "session":
		return "the session was opened without " + capability
	}
	return ""
}

func (a *app) interruptedHint() string {
	switch a.verb {
	case "exec":
		return "the command was told to end as well"
	case "put", "get", "cp":
		return "the same command goes on where this one ended, within a week"
	case "pull":
		return "the next pull goes on where this one ended"
	}
	return ""
}

func number(v any) (int64, bool) {
	switch n := v.(type) {
	case float64:
		return int64(n), true
	case int64:
		return n, true
	case int:
		return int64(n), true
	}
	return 0, false
}
