package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"farhand/internal/version"
	"farhand/wire"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which version this is", Args: between(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{
					"version": version.String(), "protocol": wire.ProtocolVersion, "go": runtime.Version(),
					"platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			a.tell("farhand %s (protocol %s, %s/%s)", version.String(), wire.ProtocolVersion, runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
