// The farhand command: the operator's end of Farhand, on Linux, macOS and Windows.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"farhand/cmd/farhand/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	home, _ := os.UserHomeDir() // empty: the configuration then has to be named
	code := cli.Run(ctx, cli.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Home: home,
	})
	stop()
	os.Exit(code)
}
