package shell_test

import (
	"testing"

	"farhand/shell"
	"farhand/shell/shelltest"
)

func TestLocalConformance(t *testing.T) {
	for name, cgroup := range map[string]func(*testing.T) string{
		"tree":   func(*testing.T) string { return "none" },
		"cgroup": shell.TestCgroup,
	} {
		t.Run(name, func(t *testing.T) {
			at := cgroup(t)
			shelltest.Suite{Open: func(t *testing.T) shell.Runner {
				runner, err := shell.NewLocal(shell.LocalConfig{Cgroup: at})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := runner.Close(); err != nil {
						t.Error(err)
					}
				})
				return runner
			}}.Run(t)
		})
	}
}
