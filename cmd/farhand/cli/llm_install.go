package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/internal/ollamapack"
	"farhand/wire"
)

func (a *app) llmInstall() *cobra.Command {
	var from, sum string
	cmd := &cobra.Command{
		Use:   "install [MACHINE] --from ARCHIVE",
		Short: "Install or update Ollama on an appliance",
		Long: `install puts Ollama on the data partition of an appliance, out of its maker's archive
for Linux and the machine's processors (.tgz or .tar.zst), and starts it. What is there
already is replaced once the new one stays up, and stays otherwise; models are kept.

Libraries for graphics cards, most of an archive, are not sent. --sha256 compares the
archive with the sum that its maker tells. Interrupted, the same install goes on where it
ended. The owner has to have allowed it (llm_manage, and files to send the archive).`,
		Example: "  farhand llm install pi --from ollama-linux-arm64.tar.zst --sha256 4f6a…",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" {
				return usage("--from names the archive of Ollama")
			}
			if sum = strings.ToLower(strings.TrimSpace(sum)); sum != "" && (len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "") {
				return usage("--sha256 has 64 hexadecimal digits")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			name, err := a.machine(cmd.Context(), c, first(args...))
			if err != nil {
				return err
			}
			m, err := c.Machine(cmd.Context(), name)
			if err != nil {
				return err
			}
			s, err := c.Open(cmd.Context(), client.Place{Machine: m.ID})
			if err != nil {
				return err
			}
			return a.installOllama(cmd.Context(), s, m, from, sum)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringVar(&from, "from", "", "the maker's `ARCHIVE` for Linux")
	cmd.Flags().StringVar(&sum, "sha256", "", "the archive's SHA-256 in `HEX`, or nothing is sent")
	return cmd
}

func (a *app) installOllama(ctx context.Context, s *client.Session, m client.Machine, from, sum string) error {
	if err := mayInstall(ctx, s); err != nil {
		return err
	}
	small, err := os.CreateTemp("", "farhand-ollama-")
	if err != nil {
		return err
	}
	defer func() {
		small.Close()
		os.Remove(small.Name())
	}()
	a.note("Reading %s …", from)
	packed, err := pack(ctx, from, small)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", from, err)
	case sum != "" && packed.Original != sum:
		return wire.Errorf(wire.TransferMismatch, "%s: its SHA-256 is %s", from, packed.Original).With("sha256", packed.Original).With("wanted", sum)
	case m.Arch != "" && wireArch(packed.Arch) != m.Arch:
		return wire.Errorf(wire.InvalidArgument, "%s: it is for %s, and the machine is %s", from, first(packed.Arch, "other processors"), m.Arch).With("field", "from")
	}
	if sum == "" {
		a.note("Its SHA-256 is %s.", packed.Original)
	}
	at := path.Join(s.Info().Root, ".farhand-ollama-"+packed.SHA256[:12]+".tgz")
	if err := a.sendOllama(ctx, s, small.Name(), at, packed); err != nil {
		return err
	}
	st, err := s.InstallOllama(ctx, at, packed.SHA256)
	if err != nil {
		return err
	}
	if err := a.showPull(ctx, st, "unpacking"); err != nil {
		if errors.Is(err, wire.InvalidArgument) { // it won't do the next time, either
			_ = s.Delete(context.WithoutCancel(ctx), wire.FileDelete{Path: at, MissingOK: true})
		}
		return err
	}
	status, err := s.LLM(ctx)
	if err != nil {
		return err
	}
	a.note("%s", serverWords(status))
	if !a.json {
		return nil
	}
	return a.line(map[string]any{"installed": status.Installed, "version": status.Version, "state": status.State, "sha256": packed.Original})
}

// wireArch is an architecture as the protocol calls it.
func wireArch(goarch string) string {
	if goarch == "amd64" {
		return "x86_64"
	}
	return goarch
}

// mayInstall finds out before anything is sent.
func mayInstall(ctx context.Context, s *client.Session) error {
	for _, need := range []wire.Capability{wire.LLMManage, wire.Transfer} {
		if !s.Info().Capabilities.Has(need) {
			need = need.Owned()
			return wire.Errorf(wire.CapabilityNotGranted, "%s isn't allowed in this session: farhand grants MACHINE --add %s, if the machine offers it", need, need).
				With("capability", string(need)).With("required_capability", string(need))
		}
	}
	status, err := s.LLM(ctx)
	if err != nil {
		return err
	}
	if status.Installs {
		return nil
	}
	// The machine says best why not: it looks at that before the archive.
	_, err = s.InstallOllama(ctx, ".farhand-ollama", strings.Repeat("0", 64))
	if err == nil {
		err = wire.Errorf(wire.FeatureNotSupported, "Ollama can't be installed on this machine from here").With("feature", "llm_install")
	}
	return err
}

// pack makes of an archive what is sent of it.
func pack(ctx context.Context, from string, to *os.File) (ollamapack.Packed, error) {
	f, err := os.Open(from)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err // the path is said already
		}
		return ollamapack.Packed{}, err
	}
	defer f.Close()
	return ollamapack.Pack(ctx, f, to)
}

func (a *app) sendOllama(ctx context.Context, s *client.Session, name, at string, packed ollamapack.Packed) error {
	src, err := client.LocalSource(name)
	if err != nil {
		return err
	}
	src.Key = packed.SHA256 // the same of every archive like it, however often it is made
	b := a.progress(ctx, "sending")
	defer b.end()
	_, err = s.Put(ctx, at, src, client.PutOptions{Tell: b.tell})
	return err
}

func (a *app) llmUninstall() *cobra.Command {
	var models bool
	cmd := &cobra.Command{
		Use:   "uninstall [MACHINE]",
		Short: "Remove Ollama from an appliance",
		Long: `uninstall ends Ollama on an appliance and removes what install or the image put there.
Its models stay, unless --models removes them, too. The owner has to have allowed it
(llm_manage).`,
		Example: "  farhand llm uninstall pi\n  farhand llm uninstall pi --models",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onModels(cmd, first(args...), func(ctx context.Context, s *client.Session) error {
				if err := s.UninstallOllama(ctx, models); err != nil {
					return err
				}
				return a.done(map[string]any{"uninstalled": true, "models": models})
			})
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().BoolVar(&models, "models", false, "remove all of its models, too")
	return cmd
}

// serverWords say what serves the models of a machine, or what is missing.
func serverWords(s wire.LLMStatus) string {
	name := clean(strings.TrimSpace(s.Kind + " " + s.Version))
	switch s.State {
	case wire.LLMReady:
		return name + " runs."
	case wire.LLMNoModel:
		return name + " runs, and has no model yet: farhand llm pull MACHINE qwen3:0.6b gets a small one."
	case wire.LLMStopped:
		return name + " is installed on this machine and doesn't run: its unit is ollama.service."
	case wire.LLMNotInstalled:
		if s.Installs {
			return name + " isn't installed on this machine: farhand llm install does that."
		}
		return name + " isn't installed on this machine: its maker's installer does that."
	}
	if s.Reachable {
		return name + " runs."
	}
	return name + " doesn't answer: " + clean(s.Reason)
}
