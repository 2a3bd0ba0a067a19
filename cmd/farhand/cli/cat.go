package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) cat() *cobra.Command {
	return &cobra.Command{
		Use:   "cat MACHINE:PATH...",
		Short: "Write files of a machine to standard output",
		Long: `cat writes files as they are, one after the other. With --json it gives their
content as text or, where that can't be, in base64: "encoding" says which.`,
		Example: "  farhand cat pi:/data/work/log.txt | tail",
		Args:    between(1, 1000, "MACHINE:PATH, once or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			files := make([]content, 0, len(args))
			err := a.eachFile(cmd.Context(), args, func(s *client.Session, t target) error {
				if !a.json {
					_, err := s.ReadAll(cmd.Context(), t.here(), a.env.Stdout, nil)
					return err
				}
				f, err := contentOf(cmd.Context(), s, t.here())
				files = append(files, f)
				return err
			})
			if err != nil {
				return err
			}
			return a.done(map[string]any{"files": files})
		},
		ValidArgsFunction: a.completeTargets,
	}
}

// content is a file as --json shows it.
type content struct {
	transferred
	Encoding string `json:"encoding"`
	Content  string `json:"content"`
}

func contentOf(ctx context.Context, s *client.Session, path string) (content, error) {
	var b bytes.Buffer
	done, err := s.ReadAll(ctx, path, &b, nil)
	f := content{
		transferred: transferred{Machine: s.Info().MachineID, Path: path, Bytes: done.Bytes, Changed: done.Changed},
		Encoding:    wire.EncodingUTF8, Content: b.String(),
	}
	if !utf8.Valid(b.Bytes()) {
		f.Encoding, f.Content = wire.EncodingBase64, base64.StdEncoding.EncodeToString(b.Bytes())
	}
	return f, err
}
