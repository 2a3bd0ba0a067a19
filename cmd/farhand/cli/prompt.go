package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// interactive says whether a question would reach a person.
func (a *app) interactive() bool { return isTerminal(a.env.Stdin) && !a.askedJSON() }

// ask prints a question and reads one line. A cancelled context ends the wait.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.env.Stderr, fold(question, a.style.errWidth()))
	return await(ctx, func() (string, error) { return readLine(a.env.Stdin) })
}

// confirm asks a question whose default is no.
func (a *app) confirm(ctx context.Context, question string) (bool, error) {
	answer, err := a.ask(ctx, question+" [y/N] ")
	if err != nil {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// errInterrupted is Ctrl-C or Ctrl-D where the terminal makes no signal of it.
var errInterrupted = errors.New("interrupted")

// askSecret reads one line without echo. The terminal is put back before it
// returns, also if the context ends the wait: it is set here rather than by the
// goroutine that reads, which may outlive this.
func (a *app) askSecret(ctx context.Context, question string) (line string, err error) {
	f, ok := a.env.Stdin.(*os.File)
	if !ok {
		return "", errors.New("no terminal to ask for a secret")
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return "", fmt.Errorf("terminal: %w", err)
	}
	defer func() {
		term.Restore(int(f.Fd()), before)
		if err != nil { // the question still stands on its line
			fmt.Fprintln(a.env.Stderr)
			a.below = true
		}
	}()
	if a.secrets == nil { // one for all questions: it may read ahead
		a.secrets = term.NewTerminal(duplex{f, a.env.Stderr}, "")
	}
	line, err = await(ctx, func() (string, error) { return a.secrets.ReadPassword(question) })
	if errors.Is(err, io.EOF) {
		return "", errInterrupted
	}
	return line, err
}

type duplex struct {
	io.Reader
	io.Writer
}

// await runs a read that can't be cancelled and leaves it alone when the context
// ends first.
func await(ctx context.Context, read func() (string, error)) (string, error) {
	type outcome struct {
		line string
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		line, err := read()
		done <- outcome{line, err}
	}()
	select {
	case o := <-done:
		return o.line, o.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// readLine reads to the end of a line and not one byte further, so that what
// follows is left for the next question.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) <= maxConfig; {
		n, err := r.Read(one)
		if n == 1 {
			if one[0] == '\n' {
				return strings.TrimSuffix(string(line), "\r"), nil
			}
			line = append(line, one[0])
		}
		if err == io.EOF && len(line) > 0 {
			return string(line), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", errors.New("the line is too long")
}

// secretFrom reads a secret from a file or, as "-", from standard input.
func (a *app) secretFrom(name string) (string, error) {
	if name != "-" {
		b, err := readSmall(name)
		return firstLine(b), err
	}
	return readLine(a.env.Stdin)
}
