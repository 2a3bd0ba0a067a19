package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"farhand/client/clienttest"
	"farhand/cmd/farhand/cli"
)

// Every example that the help of a verb for devices shows is one that the command
// takes, and every such verb has a machine completed.
func TestExamplesOfHelp(t *testing.T) {
	r := clienttest.New(t)
	newBench(r)
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"bracket.gcode", "label.bin", "firmware.bin"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("G28\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // for those that would go on for ever
		defer cancel()
		code := cli.Run(ctx, cli.Env{Args: args, Stdin: strings.NewReader("G28\n"), Stdout: &out, Stderr: &out, Home: dir,
			Getenv: func(name string) string {
				return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
			}})
		return code, out.String()
	}
	verbs := [][]string{{"devices"}, {"release"}, {"grants"}, {"logs"}, {"top"}}
	for _, group := range []string{"gpio", "i2c", "spi", "usb", "print", "serial"} {
		_, help := run(group, "--help")
		_, list, _ := strings.Cut(help, "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		found := regexp.MustCompile(`(?m)^  (\S+)`).FindAllStringSubmatch(list, -1)
		if len(found) == 0 {
			t.Fatalf("%s has no verbs:\n%s", group, help)
		}
		verbs = append(verbs, []string{group})
		for _, m := range found {
			verbs = append(verbs, []string{group, m[1]})
		}
	}
	tried := 0
	for _, verb := range verbs {
		name := strings.Join(verb, " ")
		_, help := run(append(verb, "--help")...)
		if len(verb) > 1 && name != "usb hid" {
			if _, names := run(append(append([]string{"__complete"}, verb...), "p")...); !strings.HasPrefix(names, "pi\n") {
				t.Errorf("%s completes no machine: %s", name, names)
			}
		}
		_, examples, _ := strings.Cut(help, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		for line := range strings.Lines(examples) {
			line, ok := strings.CutPrefix(line, "  farhand ")
			if !ok || strings.ContainsAny(line, "|>\"") {
				continue
			}
			line = strings.TrimSpace(line)
			if code, out := run(words(line)...); code == 2 {
				t.Errorf("help of %s: farhand %s\n%s", name, line, out)
			}
			tried++
		}
	}
	if tried < 50 {
		t.Errorf("only %d examples were found", tried)
	}
}

// words splits a command line as a shell does, with single quotes.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
