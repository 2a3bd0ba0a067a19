package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/client/llmserver"
	"farhand/wire"
)

func (a *app) llm() *cobra.Command {
	g := group("llm", "Use the language models of a machine",
		a.llmModels(), a.llmPs(), a.llmPull(), a.llmRm(), a.llmChat(), a.llmBench(), a.llmServe(), a.llmInstall(), a.llmUninstall())
	g.Long = `llm works with the models that a machine serves itself, by Ollama or a server of
OpenAI's API. What is asked and answered goes through the relay, and nowhere else.`
	g.Example = `  farhand llm models pi
  farhand llm pull pi qwen3:0.6b
  farhand llm chat pi -- Why is the sky blue?
  farhand llm serve pi`
	return g
}

// onModels runs do in a session of the machine.
func (a *app) onModels(cmd *cobra.Command, name string, do func(context.Context, *client.Session) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	machine, err := a.machine(cmd.Context(), c, name)
	if err != nil {
		return err
	}
	s, err := c.Open(cmd.Context(), client.Place{Machine: machine})
	if err != nil {
		return err
	}
	return do(cmd.Context(), s)
}

func (a *app) llmModels() *cobra.Command {
	return &cobra.Command{
		Use:   "models [MACHINE]",
		Short: "List the models of a machine",
		Long: `models lists the models that a machine has: their size, whether they are in memory,
and how fast they were on that machine when they were last used.`,
		Example: "  farhand llm models pi\n  farhand llm models pi --json",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onModels(cmd, first(args...), func(ctx context.Context, s *client.Session) error {
				status, err := s.LLM(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(status)
				}
				if !status.Reachable {
					return unreachable(status)
				}
				return a.showModels(status, status.Models)
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

// unreachable is the error of a server that doesn't answer, with what is missing.
func unreachable(s wire.LLMStatus) *wire.Error {
	return wire.Errorf(wire.LocalLLMFailed, "%s", strings.TrimSuffix(serverWords(s), ".")).With("reason", "unreachable").With("state", s.State)
}

func (a *app) llmPs() *cobra.Command {
	return &cobra.Command{
		Use:     "ps [MACHINE]",
		Short:   "Say what serves the models, and list those in memory",
		Example: "  farhand llm ps pi",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onModels(cmd, first(args...), func(ctx context.Context, s *client.Session) error {
				status, err := s.LLM(ctx)
				if err != nil {
					return err
				}
				loaded := slices.DeleteFunc(slices.Clone(status.Models), func(m wire.LLMModel) bool { return m.Loaded == nil })
				if a.json {
					return a.printJSON(map[string]any{
						"models": append([]wire.LLMModel{}, loaded...), "running": status.Running, "waiting": status.Waiting,
						"kind": status.Kind, "state": status.State, "version": status.Version, "installed": status.Installed,
					})
				}
				a.note("%s", serverWords(status))
				if !status.Reachable || len(status.Models) == 0 {
					return nil
				}
				if status.Running {
					a.note("A completion is running, and %d wait.", status.Waiting)
				}
				if len(loaded) == 0 {
					a.note("No model is in memory; the first question loads one.")
					return nil
				}
				return a.showModels(status, loaded)
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

func (a *app) showModels(status wire.LLMStatus, models []wire.LLMModel) error {
	if len(models) == 0 {
		a.note("This machine has no model yet: farhand llm pull MACHINE qwen3:0.6b gets a small one.")
		return nil
	}
	t := table{head: []string{"MODEL", "SIZE", "PARAMETERS", "IN MEMORY", "TOKENS/S"}}
	for _, m := range models {
		sized, memory, speed := "-", "-", "-"
		if m.SizeBytes > 0 {
			sized = size(m.SizeBytes)
		}
		if m.Loaded != nil {
			memory = size(m.Loaded.Bytes)
			if m.Loaded.Expires > 0 {
				memory += ", goes " + a.until(time.Unix(int64(m.Loaded.Expires), 0))
			}
		}
		if m.TokensPerSecond > 0 {
			speed = fmt.Sprintf("%.1f", m.TokensPerSecond)
		}
		t.add(cell{m.Name, a.style.out.bold}, plain(sized), plain(dash(strings.TrimSpace(m.Parameters+" "+m.Quantization))), plain(memory), plain(speed))
	}
	if err := t.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
		return err
	}
	if status.AvailableBytes > 0 {
		a.note("%s of memory are free for a model.", size(status.AvailableBytes))
	}
	return nil
}

// machineAndModel are the arguments [MACHINE] MODEL.
func machineAndModel(args []string) (machine, model string) {
	if len(args) == 2 {
		machine = args[0]
	}
	return machine, args[len(args)-1]
}

func (a *app) llmPull() *cobra.Command {
	return &cobra.Command{
		Use:   "pull [MACHINE] MODEL",
		Short: "Have a machine download a model",
		Long: `pull has the machine's Ollama download a model. A link that is lost meanwhile
doesn't end it, Ctrl-C does; what has come is kept, and the next pull goes on there.
The owner has to have allowed it (llm_manage).`,
		Example: "  farhand llm pull pi qwen3:0.6b",
		Args:    between(1, 2, "[MACHINE] MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, model := machineAndModel(args)
			return a.onModels(cmd, machine, func(ctx context.Context, s *client.Session) error {
				st, err := s.PullModel(ctx, model)
				if err != nil {
					return err
				}
				if err := a.showPull(ctx, st, model); err != nil {
					return err
				}
				a.note("%s is there.", clean(model))
				return nil
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

// showPull follows a pull to its end; a failure of it is ours.
func (a *app) showPull(ctx context.Context, st *client.Stream, model string) error {
	var (
		failure *wire.Error
		layer   *bar
		digest  string
		step    string
		done    bool
	)
	finish := func() {
		if layer != nil {
			layer.end()
			layer = nil
		}
	}
	defer finish()
	show := func(p wire.LLMProgress) error {
		done = p.Status == "success"
		switch {
		case p.Error != nil:
			failure = p.Error
		case p.TotalBytes > 0:
			if p.Digest != digest || layer == nil {
				finish()
				digest, layer = p.Digest, a.progress(ctx, model)
			}
			layer.tell(p.CompletedBytes, p.TotalBytes)
		case p.Status != step:
			finish()
			step = p.Status
			if a.style.errT && !done {
				a.note("%s", clean(step))
			}
		}
		return nil
	}
	take := func(raw json.RawMessage) error {
		var p wire.LLMProgress
		if err := json.Unmarshal(raw, &p); err != nil {
			return wire.Errorf(wire.InternalError, "a record of the stream can't be read: %v", err)
		}
		return show(p)
	}
	err := a.follow(ctx, st, watching{task: true, record: take})
	switch {
	case failure != nil: // says more than that the stream has failed
		return failure
	case err != nil:
		return err
	case !done:
		return wire.Errorf(wire.LocalLLMFailed, "the pull was ended before the model was complete; the next one goes on from there").With("reason", "truncated")
	}
	return nil
}

func (a *app) llmRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm [MACHINE] MODEL",
		Short:   "Delete a model on a machine",
		Example: "  farhand llm rm pi qwen3:0.6b",
		Args:    between(1, 2, "[MACHINE] MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, model := machineAndModel(args)
			return a.onModels(cmd, machine, func(ctx context.Context, s *client.Session) error {
				if err := s.RemoveModel(ctx, model); err != nil {
					return err
				}
				return a.done(map[string]any{"removed": model})
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

type chatFlags struct {
	model     string
	system    string
	maxTokens int
	think     bool
	nowait    bool
}

func (f *chatFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "the `MODEL` to ask (default: one that is in memory, else the machine's first)")
	flags.IntVar(&f.maxTokens, "max-tokens", 1024, "end an answer after so many tokens")
}

// pick is the model that is meant.
func (f *chatFlags) pick(ctx context.Context, s *client.Session) (string, error) {
	if f.model != "" {
		return f.model, nil
	}
	status, err := s.LLM(ctx)
	if err != nil {
		return "", err
	}
	return pickOf(status)
}

// pickOf is the model that is used where none is named: one that is in memory, else
// the first.
func pickOf(status wire.LLMStatus) (string, error) {
	if len(status.Models) == 0 {
		if !status.Reachable {
			return "", unreachable(status)
		}
		return "", wire.Errorf(wire.ModelNotAvailable, "this machine has no model yet; farhand llm pull gets one").With("available_models", []string{})
	}
	for _, m := range status.Models {
		if m.Loaded != nil {
			return m.Name, nil
		}
	}
	return status.Models[0].Name, nil
}

func (a *app) llmChat() *cobra.Command {
	var f chatFlags
	cmd := &cobra.Command{
		Use:   "chat [MACHINE] [-- TEXT...]",
		Short: "Talk to a model of a machine",
		Long: `chat asks a model and shows the answer while it comes. The question stands after --,
or is what standard input brings; on a terminal without either it is a conversation,
which Ctrl-D ends.`,
		Example: `  farhand llm chat pi -- Why is the sky blue?
  farhand llm chat pi --model qwen3:0.6b --think < question.txt
  farhand llm chat pi`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, text := args, ""
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				machine, text = args[:dash], strings.Join(args[dash:], " ")
			}
			if len(machine) > 1 {
				return usage("one machine at most; the question stands after --")
			}
			return a.onModels(cmd, first(machine...), func(ctx context.Context, s *client.Session) error {
				model, err := f.pick(ctx, s)
				if err != nil {
					return err
				}
				t := &talk{a: a, s: s, f: f, model: model}
				if f.system != "" {
					t.said = append(t.said, wire.LLMMessage{Role: "system", Content: f.system})
				}
				switch {
				case text != "":
					return t.ask(ctx, text)
				case a.interactive():
					return t.converse(ctx)
				}
				question, err := io.ReadAll(io.LimitReader(a.env.Stdin, wire.MaxText))
				if err != nil {
					return fmt.Errorf("read the question: %w", err)
				}
				return t.ask(ctx, string(question))
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.system, "system", "", "what the model is told first")
	cmd.Flags().BoolVar(&f.think, "think", false, "have the model think first, and show what it thinks")
	cmd.Flags().BoolVar(&f.nowait, "no-wait", false, "fail if another completion runs, rather than wait for it")
	return cmd
}

// talk is a conversation.
type talk struct {
	a     *app
	s     *client.Session
	f     chatFlags
	model string
	said  []wire.LLMMessage
}

// converse asks what is typed, line by line.
func (t *talk) converse(ctx context.Context) error {
	t.a.note("Talking to %s. Ctrl-D ends it.", clean(t.model))
	for {
		line, err := t.a.ask(ctx, t.a.style.err.bold("> "))
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(t.a.env.Stderr)
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := t.ask(ctx, line); err != nil {
			return err
		}
	}
}

// ask puts one question and shows the answer, which stays part of the talk.
func (t *talk) ask(ctx context.Context, text string) error {
	if strings.TrimSpace(text) == "" {
		return usage("there is nothing to ask: put the question after --, or into standard input")
	}
	t.said = append(t.said, wire.LLMMessage{Role: "user", Content: text})
	request := wire.LocalLLMCompletion{
		Model: t.model, Messages: t.said, MaxTokens: &t.f.maxTokens, Think: &t.f.think, Wait: !t.f.nowait,
	}
	view := answerView{a: t.a}
	show := view.take
	if t.a.json {
		show = nil
	}
	got, err := t.s.Complete(ctx, request, show)
	if e := view.end(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	t.said = append(t.said, wire.LLMMessage{Role: "assistant", Content: got.Content})
	if t.a.json {
		return t.a.printJSON(struct {
			Model string `json:"model"`
			wire.LocalLLMResponse
		}{t.model, got})
	}
	if got.FinishReason == "length" {
		t.a.note("The answer was cut; --max-tokens allows more.")
	}
	return nil
}

// answerView shows an answer as it comes: the answer on standard output, what the
// model thinks and what it waits for on standard error.
type answerView struct {
	a        *app
	thinking bool
	last     string
}

func (v *answerView) take(c wire.LocalLLMChunk) error {
	switch {
	case c.Waiting > 0:
		v.a.note("Waiting: %d before this.", c.Waiting)
	case c.Thinking != "":
		v.thinking = true
		fmt.Fprint(v.a.env.Stderr, v.a.style.err.dim(printable(c.Thinking)))
	case c.Delta != "":
		if v.thinking {
			v.thinking = false
			fmt.Fprint(v.a.env.Stderr, "\n\n")
		}
		v.last = c.Delta
		if v.a.style.outTTY {
			c.Delta = printable(c.Delta)
		}
		_, err := io.WriteString(v.a.env.Stdout, c.Delta)
		return err
	}
	return nil
}

// end ends the line, if something stands there.
func (v *answerView) end() error {
	if v.last == "" || strings.HasSuffix(v.last, "\n") {
		return nil
	}
	_, err := io.WriteString(v.a.env.Stdout, "\n")
	return err
}

// printable keeps lines and tabs and lets nothing else steer the terminal.
func printable(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for n := range cells {
			cells[n] = clean(cells[n])
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

// benchQuestion makes a model write for a while.
const benchQuestion = "Count from one to fifty in words, one a line."

func (a *app) llmBench() *cobra.Command {
	var f chatFlags
	cmd := &cobra.Command{
		Use:   "bench [MACHINE]",
		Short: "Measure how fast a model is on a machine",
		Long: `bench asks a model for an answer of some length and says how long loading took, how
many tokens a second it reads and writes, and how long the first piece took to arrive
here.`,
		Example: "  farhand llm bench pi --model qwen3:0.6b",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onModels(cmd, first(args...), func(ctx context.Context, s *client.Session) error {
				model, err := f.pick(ctx, s)
				if err != nil {
					return err
				}
				return a.bench(ctx, s, model, f.maxTokens)
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	f.add(cmd)
	return cmd
}

func (a *app) bench(ctx context.Context, s *client.Session, model string, maxTokens int) error {
	began, firstPiece := a.env.Now(), time.Duration(0)
	got, err := s.Complete(ctx, wire.LocalLLMCompletion{
		Model: model, MaxTokens: &maxTokens, Wait: true,
		Messages: []wire.LLMMessage{{Role: "user", Content: benchQuestion}},
	}, func(c wire.LocalLLMChunk) error {
		if c.Delta != "" && firstPiece == 0 {
			firstPiece = a.env.Now().Sub(began)
		}
		return nil
	})
	if err != nil {
		return err
	}
	result := struct {
		Model        string           `json:"model"`
		FirstSeconds float64          `json:"first_piece_seconds"`
		Seconds      float64          `json:"seconds"`
		Tokens       wire.LLMTokens   `json:"tokens"`
		Timings      *wire.LLMTimings `json:"timings,omitempty"`
	}{model, firstPiece.Seconds(), a.env.Now().Sub(began).Seconds(), got.Tokens, got.Timings}
	if a.json {
		return a.printJSON(result)
	}
	t := table{}
	row := func(what, format string, v any) { t.add(plain(what), plain(fmt.Sprintf(format, v))) }
	row("model", "%s", model)
	row("first piece here after", "%.2f s", result.FirstSeconds)
	if timings := got.Timings; timings != nil {
		row("loading", "%.2f s", timings.LoadSeconds)
		row("reads", "%.1f tokens/s", timings.PromptTokensPerSecond)
		row("writes", "%.1f tokens/s", timings.TokensPerSecond)
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func (a *app) llmServe() *cobra.Command {
	listen := "127.0.0.1:11435"
	cmd := &cobra.Command{
		Use:   "serve [MACHINE]",
		Short: "Offer a machine's models here by OpenAI's API",
		Long: `serve answers OpenAI's API on this computer's loopback with the models of a machine:
/v1/models, /v1/chat/completions and /v1/embeddings. Tools that take a base URL need
no more than that; any API key will do. Ctrl-C ends it.`,
		Example: `  farhand llm serve pi
  OPENAI_BASE_URL=http://127.0.0.1:11435/v1 OPENAI_API_KEY=none some-tool`,
		Args: between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onModels(cmd, first(args...), func(ctx context.Context, s *client.Session) error {
				if _, err := s.LLM(ctx); err != nil {
					return err // better now than at the first question
				}
				return a.serveModels(ctx, s, listen)
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "loopback `ADDRESS`:PORT to listen on; port 0 takes a free one")
	return cmd
}

func (a *app) serveModels(ctx context.Context, s *client.Session, listen string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		l.Close()
		return usage("--listen must be an address of loopback, such as 127.0.0.1:11435: whoever reaches it uses the model")
	}
	base := "http://" + l.Addr().String() + "/v1"
	if a.json {
		err = a.line(map[string]any{"base_url": base})
	} else {
		a.printf("%s\n", base)
		a.note("serves the models of this machine by OpenAI's API, until Ctrl-C.")
	}
	if err != nil {
		l.Close()
		return err
	}
	server := &http.Server{
		Handler: llmserver.Handler(s), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- server.Close() })
	err = server.Serve(l)
	if stop() {
		return err
	}
	return <-stopped
}
