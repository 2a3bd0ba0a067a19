package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"farhand/client"
	"farhand/wire"
)

// maxAtOnce bounds how many machines run a command at the same time.
const maxAtOnce = 32

// machineRun is what became of a command on one machine.
type machineRun struct {
	ID     string              `json:"machine_id"`
	Name   string              `json:"name"`
	Result *wire.CommandResult `json:"result,omitempty"`
	Error  *failure            `json:"error,omitempty"` // it couldn't be run, or not to its end
}

// code is its exit code among those of exec.
func (r machineRun) code() int {
	if r.Error != nil {
		return exitExec
	}
	return exitCode(*r.Result)
}

// execMany runs a command on all machines of a group, or on all that there are,
// side by side. What each wrote is printed when its command has ended.
func (a *app) execMany(ctx context.Context, c *client.Client, request wire.ExecuteCommand, f execFlags) error {
	all, err := c.Machines(ctx)
	if err != nil {
		return err
	}
	machines, err := inGroup(all, f.group)
	if err != nil {
		return err
	}
	var (
		mu      sync.Mutex // of the output
		failed  error
		runs    = make([]machineRun, len(machines))
		free    = make(chan struct{}, maxAtOnce)
		running sync.WaitGroup
	)
	for i, m := range machines {
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			run := a.execOn(ctx, c, m, request, f.root)
			mu.Lock()
			defer mu.Unlock()
			runs[i] = run
			failed = errors.Join(failed, a.printRun(run))
		})
	}
	running.Wait()
	if failed != nil {
		return failed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !a.json {
		if err := a.summary(runs); err != nil {
			return err
		}
	}
	worst := exitOK
	for _, r := range runs {
		worst = max(worst, r.code())
	}
	if worst != exitOK {
		return exitStatus(worst)
	}
	return nil
}

// execOn runs a command on one of several machines.
func (a *app) execOn(ctx context.Context, c *client.Client, m client.Machine, request wire.ExecuteCommand, root string) machineRun {
	run := machineRun{ID: m.ID, Name: first(m.Name, m.ID)}
	result, err := func() (wire.CommandResult, error) {
		if !m.Online { // a look at the list is enough
			away := wire.Errorf(wire.MachineUnreachable, "%s is not connected", run.Name).With("machine", run.Name).With("machine_id", m.ID)
			if !m.LastSeen.IsZero() {
				away = away.With("last_seen", m.LastSeen.UTC().Format(time.RFC3339))
			}
			return wire.CommandResult{}, away
		}
		s, err := openFor(ctx, c, request, client.Place{Machine: m.ID, Root: root})
		if err != nil {
			return wire.CommandResult{}, err
		}
		return s.Exec(ctx, request)
	}()
	if err == nil {
		run.Result = &result
		err = timedOut(result)
	}
	if err != nil {
		f := a.describe(ctx, err)
		run.Error = &f
	}
	return run
}

// printRun prints what a command wrote, each line behind its machine's name; with
// --json one line for the machine.
func (a *app) printRun(r machineRun) error {
	if a.json {
		enc := json.NewEncoder(a.env.Stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	var errs []error
	if r.Result != nil {
		errs = append(errs,
			prefixed(a.env.Stdout, a.style.out.dim(clean(r.Name)+":"), r.Result.Stdout),
			prefixed(a.env.Stderr, a.style.err.dim(clean(r.Name)+":"), r.Result.Stderr))
	}
	if r.Error != nil {
		room := a.style
		room.errRoom = func() int {
			n := a.style.errWidth()
			if n > 0 {
				n = max(n-shown(clean(r.Name)+": "), 1)
			}
			return n
		}
		say(prefixer{a.env.Stderr, a.style.err.dim(clean(r.Name) + ":")}, *r.Error, room)
	}
	return errors.Join(errs...)
}

// prefixed writes text with something before each line.
func prefixed(w io.Writer, prefix, text string) error {
	if text == "" {
		return nil
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(prefix + " " + strings.TrimRight(line, "\n") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// prefixer writes whole lines with something before each.
type prefixer struct {
	io.Writer
	prefix string
}

func (p prefixer) Write(b []byte) (int, error) {
	return len(b), prefixed(p.Writer, p.prefix, string(b))
}

// summary tells on standard error how it went everywhere.
func (a *app) summary(runs []machineRun) error {
	t := table{head: []string{"MACHINE", "EXIT", "TOOK"}}
	good := 0
	for _, r := range runs {
		took, exit := "-", cell{strconv.Itoa(r.code()), a.style.err.red}
		switch {
		case r.Error != nil:
			exit.text = r.Error.Code
		case r.code() == exitOK:
			good++
			exit.paint = a.style.err.green
		}
		if r.Result != nil {
			took = time.Duration(r.Result.DurationSeconds * float64(time.Second)).Round(time.Millisecond).String()
		}
		t.add(plain(r.Name), exit, plain(took))
	}
	fmt.Fprintln(a.env.Stderr)
	if err := t.write(a.env.Stderr, a.style.err, a.style.errWidth()); err != nil {
		return err
	}
	a.note("%d of %d succeeded.", good, len(runs))
	return nil
}
