// Command testmodel stands for Ollama on the boards of the boot test: it answers
// what a server without models is asked first. With a file lib/broken beside its
// bin it ends at once.
package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "testmodel:", err)
		os.Exit(1)
	}
}

func run() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "../lib/broken")); err == nil {
		return fmt.Errorf("this version is broken")
	}
	if len(os.Args) != 2 || os.Args[1] != "serve" {
		return fmt.Errorf("want the argument serve, not %q", os.Args[1:])
	}
	// Where Ollama keeps what it is given: its user must be able to.
	if err := os.WriteFile(filepath.Join(os.Getenv("OLLAMA_MODELS"), "touched"), nil, 0o600); err != nil {
		return err
	}
	http.HandleFunc("/api/version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.0.1"}`) })
	http.HandleFunc("/api/tags", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"models":[]}`) })
	http.HandleFunc("/api/ps", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"models":[]}`) })
	return http.ListenAndServe(os.Getenv("OLLAMA_HOST"), nil)
}
