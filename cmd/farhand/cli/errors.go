package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/image/flash"
	"farhand/internal/lazyregexp"
	"farhand/wire"
)

// The exit codes. 69 and 77 are EX_UNAVAILABLE and EX_NOPERM of sysexits.h; 255
// is what ssh says for a failure of its own.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 69
	exitLogin       = 77
	exitInterrupted = 130
	exitExec        = 255
)

func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Say what the exit code says",
		Args:  between(0, 0, "no arguments"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Long: `Every command but exec and shell:

    0  done
    1  the device or the relay refused or failed; the code is on standard error
    2  wrong usage
   69  the relay or the machine can't be reached
   77  not logged in, the token is not accepted any more, or it may not do this
  130  interrupted

exec and shell exit as the remote command does: its own code, 128+n if signal n killed
it. A command that ran into its timeout gives 255 with COMMAND_TIMEOUT on standard
error, and every failure of farhand itself (usage included) gives 255 with its code
on standard error, so that a code below 255 always comes from the command. With --all
or --group it is the greatest code of all machines.

audit verify gives 1 if the log has problems. serial read and serial transact with
--until give 1 if the pattern did not come, serial expect if a step did not come to its
end, usb send, receive, control and hid if time ran out, print join if it was not
granted. What goes on until it is interrupted (watch, --stay) gives 0 then.`,
	}
}

// usageError is a command line that can't be right.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitStatus ends the command with a code after everything has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// errNotLoggedIn has no code on the wire.
var errNotLoggedIn = errors.New("not logged in")

// loginNeeded is the code under which not being logged in is shown.
const loginNeeded wire.Code = "LOGIN_NEEDED"

// The relay's own codes that mean something here: a token asked for what only
// the owner's login may, the relay can't serve just now, or not so fast, or it
// knows nothing by that name.
const (
	loginRequired wire.Code = "LOGIN_REQUIRED"
	rateLimited   wire.Code = "RATE_LIMITED"
	unavailable   wire.Code = "UNAVAILABLE"
	notFound      wire.Code = "NOT_FOUND"
)

// finish reports err and turns it into the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	if !a.started { // cobra's own errors: unknown commands and flags
		var u *usageError
		if !errors.As(err, &u) {
			err = a.misused(err)
		}
	}
	code := a.codeOf(ctx, err)
	a.report(ctx, err)
	if a.execing() && code != exitOK {
		return exitExec
	}
	return code
}

// missing is what cobra says of flags that have to be given.
var missing = lazyregexp.New(`^required flag\(s\) (.*) not set$`)

// exclusive is what cobra says of flags that were given together; the second group
// are those.
var exclusive = lazyregexp.New(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)

// misused says in our words what cobra found wrong with a command line.
func (a *app) misused(err error) error {
	text := strings.TrimSpace(err.Error())
	if m := exclusive.FindStringSubmatch(text); m != nil {
		return usage("--%s can't be given together", strings.Join(strings.Fields(m[1]), " and --"))
	}
	if m := missing.FindStringSubmatch(text); m != nil {
		return usage("--%s has to be given", strings.Join(strings.Split(strings.ReplaceAll(m[1], `"`, ""), ", "), " and --"))
	}
	// An unknown command, and perhaps lines with what was meant.
	what, meant, found := strings.Cut(text, "\n\nDid you mean this?\n")
	switch names := strings.Fields(meant); {
	case found:
		return usage("%s: is it %s?", what, strings.Join(names, " or "))
	case strings.HasPrefix(what, "unknown command"):
		return usage("%s; see %s --help", what, a.root.Name())
	}
	return usage("%s", what)
}

// execing says whether exec was asked for, even if its flags were wrong.
func (a *app) execing() bool {
	if a.started {
		return a.verb == "exec" || a.verb == "shell"
	}
	found, _, _ := a.root.Find(a.env.Args) // an error has been told already
	return found != nil && (found.CommandPath() == a.root.Name()+" exec" || found.CommandPath() == a.root.Name()+" shell")
}

func (a *app) codeOf(ctx context.Context, err error) int {
	var u *usageError
	switch {
	case errors.As(err, &u):
		return exitUsage
	case ctx.Err() != nil, errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, errNotLoggedIn), errors.Is(err, wire.AuthFailed), errors.Is(err, loginRequired):
		return exitLogin
	case errors.Is(err, client.RelayUnreachable), errors.Is(err, client.RelayUntrusted),
		errors.Is(err, unavailable), errors.Is(err, wire.MachineUnreachable):
		return exitUnreachable
	default:
		return exitFailed
	}
}

// failure is an error as it is shown.
type failure struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
	Hint    string         `json:"hint,omitempty"`
}

// describe makes what is shown of err. Only codes that stand on the wire or in
// the client are shown as such; a plain local failure has the code FAILED.
func (a *app) describe(ctx context.Context, err error) failure {
	var (
		u    *usageError
		e    *wire.Error
		code wire.Code
	)
	switch {
	case errors.As(err, &u):
		return failure{Code: "USAGE", Message: u.text}
	case ctx.Err() != nil, errors.Is(err, errInterrupted):
		return failure{Code: "INTERRUPTED", Message: "interrupted", Hint: a.interruptedHint()}
	case errors.Is(err, errNotLoggedIn):
		return failure{Code: string(loginNeeded), Message: err.Error(), Hint: "farhand login URL"}
	case errors.As(err, &e):
		f := failure{Code: string(e.Code), Message: err.Error(), Details: e.Details, Hint: a.hint(e.Code, e.Details)}
		if f.Message == f.Code {
			f.Message = ""
		}
		return f
	case errors.As(err, &code):
		f := failure{Code: string(code), Message: err.Error(), Hint: a.hint(code, nil)}
		if code == client.RelayUntrusted {
			f.Hint = a.untrustedHint(err)
		}
		return f
	case errors.Is(err, flash.ErrSum):
		return failure{Code: "FAILED", Message: err.Error(),
			Hint: "nothing was written: fetch both files again, or remove the one with the checksum if it is another image's"}
	default:
		text := err.Error()
		// Which system call it was that failed is nobody's business.
		if p := (*fs.PathError)(nil); errors.As(err, &p) && p.Path != "" {
			text = strings.Replace(text, p.Op+" "+p.Path+": ", p.Path+": ", 1)
		}
		return failure{Code: "FAILED", Message: text}
	}
}

// report writes err to standard error: as JSON, or as a line with its code and
// one with what to do next.
func (a *app) report(ctx context.Context, err error) {
	f := a.describe(ctx, err)
	if a.askedJSON() {
		enc := json.NewEncoder(a.env.Stderr)
		enc.SetEscapeHTML(false)
		enc.Encode(map[string]failure{"error": f}) // stderr is gone: nobody to tell
		return
	}
	if f.Code == "INTERRUPTED" {
		a.belowInterrupt(ctx)
	}
	say(a.env.Stderr, f, a.style)
}

func say(w io.Writer, f failure, s style) {
	prefix := s.err.red("farhand:") + " "
	switch f.Code {
	case "USAGE", "FAILED", "INTERRUPTED", string(loginNeeded):
	default:
		prefix += clean(f.Code)
		if f.Message != "" {
			prefix += ": "
		}
	}
	fmt.Fprintln(w, foldAt(prefix+clean(f.Message), s.errWidth(), 4)) // further in than what to do
	if f.Hint != "" {
		fmt.Fprintln(w, fold("  "+clean(f.Hint), s.errWidth()))
	}
}
