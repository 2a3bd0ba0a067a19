package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

type askFlags struct {
	chatFlags
	files   []string
	context string
}

func (a *app) askPrivate() *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "ask [MACHINE] --file PATH... [-- QUESTION...]",
		Short: "Have a machine's own model work on private files",
		Long: `ask puts a question about files that never leave their machine: its own language
model reads them, and the answer alone comes here, as long as the owner allows
(privacy.answer_chars). Where the owner wants to see answers first, it waits for
that. The question stands after --, or is what standard input brings.`,
		Example: `  farhand ask pi --file /data/work/private/list.csv -- How many people are older than 60?
  farhand ask pi --file notes.txt --file mails.txt --model qwen3:4b < question.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, question := args, ""
			switch dash := cmd.ArgsLenAtDash(); {
			case dash >= 0:
				machine, question = args[:dash], strings.Join(args[dash:], " ")
			case len(args) == 2:
				machine, question = args[:1], args[1]
			}
			switch {
			case len(machine) > 1:
				return usage("one machine at most; the question stands after --")
			case len(f.files) == 0 || len(f.files) > wire.MaxStubRefs:
				return usage("1 to %d files: --file PATH for each", wire.MaxStubRefs)
			}
			if question == "" && !a.interactive() {
				b, err := io.ReadAll(io.LimitReader(a.env.Stdin, wire.MaxTurnText+1))
				if err != nil {
					return fmt.Errorf("read the question: %w", err)
				}
				question = string(b)
			}
			if question = strings.TrimSpace(question); question == "" {
				return usage("there is nothing to ask: put the question after --, or into standard input")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := a.at(cmd.Context(), c, first(machine...), f.files...)
			if err != nil {
				return err
			}
			return a.runAsk(cmd.Context(), s, f, question)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.files, "file", nil, "a private file, by its name or its alias; several times for several")
	flags.StringVar(&f.context, "context", "", "what the model is told before the files")
	flags.BoolVar(&f.nowait, "no-wait", false, "fail if another completion runs, rather than wait for it")
	return cmd
}

func (a *app) runAsk(ctx context.Context, s *client.Session, f askFlags, question string) error {
	model, err := f.pickHere(ctx, s)
	if err != nil {
		return err
	}
	turn := wire.LLMTurn{Model: model, Task: question, Context: f.context, MaxTokens: &f.maxTokens, Wait: !f.nowait}
	for _, path := range f.files {
		stub, err := s.ReadStub(ctx, path)
		if err != nil {
			return err
		}
		turn.StubRefs = append(turn.StubRefs, stub.StubID)
	}
	view := answerView{a: a}
	show := func(c wire.LLMTurnChunk) error {
		return view.take(wire.LocalLLMChunk{Delta: c.Delta, Waiting: c.Waiting})
	}
	if a.json {
		show = nil
	}
	answer, err := s.Turn(ctx, turn, show)
	if err == nil && !a.json && view.last == "" { // it was held until now
		err = view.take(wire.LocalLLMChunk{Delta: answer.Output})
	}
	if e := view.end(); err == nil {
		err = e
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(answer)
	case answer.Truncated:
		a.note("The answer was cut: the machine's owner allows no longer ones.")
	case answer.FinishReason == "length":
		a.note("The answer was cut; --max-tokens allows more.")
	}
	return nil
}

// pickHere is the model that is meant, of those that run on the machine itself.
func (f *chatFlags) pickHere(ctx context.Context, s *client.Session) (string, error) {
	if f.model != "" {
		return f.model, nil
	}
	status, err := s.LLM(ctx)
	if err != nil {
		return "", err
	}
	status.Models = slices.DeleteFunc(status.Models, func(m wire.LLMModel) bool { return m.Remote })
	return pickOf(status)
}

func (a *app) stub() *cobra.Command {
	return &cobra.Command{
		Use:   "stub MACHINE:PATH...",
		Short: "Describe private files of a machine",
		Long: `stub says what may be known of files whose content never leaves their machine: size,
type, a digest that changes with them, and how they are built, in types and counts.
farhand ask has the machine's own model work on them.`,
		Example: "  farhand stub pi:/data/work/private/list.csv\n  farhand stub pi:private/list.csv pi:private/notes.txt --json",
		Args:    between(1, 1000, "MACHINE:PATH, once or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			stubs := make([]wire.FileStub, 0, len(args))
			err := a.eachFile(cmd.Context(), args, func(s *client.Session, t target) error {
				stub, err := s.ReadStub(cmd.Context(), t.here())
				stubs = append(stubs, stub)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"stubs": stubs})
			}
			return a.showStubs(stubs)
		},
		ValidArgsFunction: a.completeTargets,
	}
}

func (a *app) showStubs(stubs []wire.FileStub) error {
	t := table{head: []string{"SIZE", "TYPE", "CONTENT", "DIGEST", "PATH"}}
	for _, s := range stubs {
		digest := s.HMAC
		if len(digest) > 12 {
			digest = digest[:12]
		}
		t.add(plain(size(s.SizeBytes)), plain(dash(s.MIMEType)), plain(built(s.SchemaPreview)), plain(digest), plain(s.Path))
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

// built is in a few words how a file is built.
func built(p *wire.SchemaPreview) string {
	if p == nil {
		return "-"
	}
	words := strings.ReplaceAll(p.Kind, "_", " ")
	switch {
	case p.Table != nil:
		words += fmt.Sprintf(", %d rows of %d columns", p.Table.Rows, p.Table.Width)
	case p.Lines > 0:
		words += fmt.Sprintf(", %d lines", p.Lines)
	case p.Format != "":
		words += " (" + p.Format + ")"
	}
	if !p.Complete {
		words += " at least"
	}
	return words
}
