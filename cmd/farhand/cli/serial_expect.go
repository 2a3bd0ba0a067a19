package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) serialExpect() *cobra.Command {
	var (
		mode   modeFlags
		form   dataForm
		flush  bool
		script string
		step   string
	)
	cmd := &cobra.Command{
		Use:   "expect [MACHINE] [DEVICE] STEP...",
		Short: "Hold a dialogue with what is at a serial port",
		Long: `expect sends and waits, step by step, on the machine itself, so that nothing is
missed in between. STEPs are:

  send:DATA      send this
  expect:DATA    wait for this
  re:REGEXP      wait for what matches (RE2, on bytes)
  stop:DATA      if this comes instead, end here
  then           what follows is a wait of its own

Several waits in a row are alternatives; send begins a new step. --script reads steps
from a JSON file in their place, as SERIAL_EXPECT of the protocol has them.

What came is written to standard output, what happened to standard error. It gives 1
if not every step came to its end.`,
		Example: `  farhand serial expect pi /dev/ttyUSB0 'send:\n' 'expect:login: ' 'send:pi\n' 'expect:Password: '
  farhand serial expect pi 'send:AT\r' 'expect:OK' 'stop:ERROR' --step-timeout 2s`,
		Args: between(0, 70, "[MACHINE] [DEVICE] STEP..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("serial", args, 0, isStep).exact("serial", isStep)
			request := wire.SerialExpect{Flush: flush}
			var err error
			if request.Steps, err = a.steps(w.rest, script, form); err != nil {
				return err
			}
			if request.TimeoutSeconds, err = mode.seconds(); err != nil {
				return err
			}
			each, err := seconds("step-timeout", step)
			if err != nil {
				return err
			}
			for i := range request.Steps {
				if request.Steps[i].TimeoutSeconds == nil {
					request.Steps[i].TimeoutSeconds = each
				}
			}
			if request.Mode, err = mode.mode(); err != nil {
				return err
			}
			return a.onDevice(cmd, "serial", w, mode.hold, func(ctx context.Context, at spot) error {
				got, err := at.session.SerialExpect(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				a.tellOpened(got.Opened)
				return a.printDialogue(got, request.Steps, form)
			})
		},
		ValidArgsFunction: a.completeDevice("serial"),
	}
	mode.add(cmd)
	mode.addTimeout(cmd, "give up after this `DURATION` in all (default 25s)")
	form.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&step, "step-timeout", "", "give up after this `DURATION` in one step (default 5s)")
	flags.BoolVar(&flush, "flush", false, "drop what was waiting before")
	flags.StringVar(&script, "script", "", "read the steps from this JSON `FILE`")
	return cmd
}

// stepKinds are what a STEP begins with.
var stepKinds = []string{"send:", "expect:", "re:", "stop:"}

func isStep(s string) bool {
	for _, kind := range stepKinds {
		if strings.HasPrefix(s, kind) {
			return true
		}
	}
	return s == "then"
}

func (a *app) steps(args []string, script string, form dataForm) ([]wire.SerialStep, error) {
	var steps []wire.SerialStep
	switch {
	case script != "" && len(args) > 0:
		return nil, usage("either STEPs or --script")
	case script != "":
		b, err := readSmall(script)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &steps); err != nil {
			return nil, usage("%s is not a list of steps: %v", script, err)
		}
	}
	fresh := true // the next wait begins a step
	for _, arg := range args {
		kind, value, _ := strings.Cut(arg, ":")
		if arg == "then" {
			fresh = true
			continue
		}
		if !isStep(arg) {
			return nil, usage("%q is no STEP: send:DATA, expect:DATA, re:REGEXP, stop:DATA or then", arg)
		}
		if kind == "send" || fresh {
			steps = append(steps, wire.SerialStep{})
		}
		fresh = false
		last := &steps[len(steps)-1]
		if kind == "re" {
			last.Expect = append(last.Expect, wire.SerialPattern{Regexp: value})
			continue
		}
		data, err := form.bytes(value)
		switch {
		case err != nil:
			return nil, err
		case len(data) == 0:
			return nil, usage("%q has nothing in it", arg)
		case kind == "send":
			last.Send = data
		default:
			last.Expect = append(last.Expect, wire.SerialPattern{Data: data, Stop: kind == "stop"})
		}
	}
	if len(steps) == 0 {
		return nil, usage("there are no steps, such as 'send:AT\\r' 'expect:OK'")
	}
	return steps, nil
}

func (a *app) printDialogue(got wire.SerialExpected, steps []wire.SerialStep, form dataForm) error {
	if a.json {
		if err := a.printJSON(got); err != nil {
			return err
		}
	}
	for i, s := range got.Steps {
		if a.json || i >= len(steps) {
			break
		}
		if _, err := io.WriteString(a.env.Stdout, a.received(s.Data, form)); err != nil {
			return err
		}
	}
	if n := len(got.Steps); a.style.outTTY && n > 0 && !strings.HasSuffix(string(got.Steps[n-1].Data), "\n") {
		a.note("") // the notes get lines of their own
	}
	for i, s := range got.Steps {
		if i < len(steps) {
			a.note("step %d: %s", i+1, stepText(s, steps[i]))
		}
	}
	if !got.Complete {
		if left := len(steps) - len(got.Steps); left > 0 {
			a.note("%d steps were left out.", left)
		}
		return exitStatus(exitFailed)
	}
	return nil
}

// received is what came in, for standard output.
func (a *app) received(b []byte, form dataForm) string {
	switch {
	case form.hex:
		return fmt.Sprintf("%x\n", b)
	case a.style.outTTY && !form.raw:
		return visible(b)
	}
	return string(b)
}

func stepText(s wire.SerialStepResult, step wire.SerialStep) string {
	var list []string
	if s.BytesWritten > 0 {
		list = append(list, "sent "+counted(s.BytesWritten, "byte", "bytes"))
	}
	switch s.StopReason {
	case "match":
		what := "what was expected"
		if m := s.Match; m != nil && m.Pattern >= 0 && m.Pattern < len(step.Expect) {
			what = pattern(step.Expect[m.Pattern])
		}
		list = append(list, fmt.Sprintf("%s came after %.3g s", what, s.Seconds))
	case "timeout":
		list = append(list, fmt.Sprintf("nothing that was expected came in %.3g s; %d bytes came", s.Seconds, s.BytesSeen))
	case "size":
		list = append(list, fmt.Sprintf("nothing that was expected came in %d bytes", s.BytesSeen))
	}
	if s.Lost > 0 {
		list = append(list, fmt.Sprintf("%d bytes were lost", s.Lost))
	}
	return clean(strings.Join(list, ", "))
}

func pattern(p wire.SerialPattern) string {
	switch {
	case p.Name != "":
		return p.Name
	case p.Regexp != "":
		return "/" + p.Regexp + "/"
	case p.Text != "":
		return fmt.Sprintf("%q", p.Text)
	}
	return fmt.Sprintf("%q", p.Data)
}
