//go:build !linux

// Command init is the first program of a Farhand image, which runs on Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "init of a Farhand image runs on Linux only")
	os.Exit(1)
}
