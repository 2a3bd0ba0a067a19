package shell

import (
	"context"
	"os"

	"farhand/wire"
)

// Files are the standard files of a program that Begin starts. They stay the
// caller's.
type Files struct {
	Stdin, Stdout, Stderr *os.File
	Terminal              bool // Stdin is a terminal, which becomes the program's own
}

// Begin starts a command and leaves it to the caller, who must wait for it and
// Reap it. What holds for Execute holds here (its shells, its environment, the
// commands in a minute, and its errors), but no time and no budget of output, and
// it isn't counted among the commands at once. A request with neither command nor
// argv is the user's own shell, if there is a terminal for it.
func (s *Service) Begin(ctx context.Context, cmd wire.ExecuteCommand, place Place, files Files) (Process, Trace, error) {
	var trace Trace
	env, keys, path, err := merge(s.base, cmd.Env)
	if err != nil {
		return nil, trace, err
	}
	trace.EnvKeys = keys
	candidates, err := s.interactive(cmd, path, files.Terminal)
	if err != nil {
		return nil, trace, err
	}
	if err := s.limiter.admit(); err != nil {
		return nil, trace, err
	}
	process, shell, err := s.start(ctx, candidates, Spec{
		Env: env, Dir: place.Dir, Stdin: files.Stdin, Stdout: files.Stdout, Stderr: files.Stderr, Terminal: files.Terminal,
	})
	if err != nil {
		return nil, trace, startError(err, cmd, place)
	}
	trace.Shell = shell
	return process, trace, nil
}

// interactive is candidates, and shells that read what is typed.
func (s *Service) interactive(cmd wire.ExecuteCommand, path string, terminal bool) ([]candidate, error) {
	if cmd.Command != nil || cmd.Argv != nil || !terminal {
		return s.candidates(cmd, path)
	}
	login := func(name string) candidate { return candidate{[]string{name, "-l"}, s.base["PATH"], name} }
	switch cmd.Shell {
	case "", "auto":
		return []candidate{login("bash"), login("sh")}, nil
	case "bash", "sh", "zsh":
		return []candidate{login(cmd.Shell)}, nil
	case "pwsh":
		return []candidate{{[]string{"pwsh", "-NoLogo"}, s.base["PATH"], "pwsh"}}, nil
	}
	line := ""
	cmd.Command = &line
	return s.candidates(cmd, path) // which says what is wrong with it
}
