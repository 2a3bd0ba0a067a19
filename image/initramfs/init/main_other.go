//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "init of a Farhand image runs on Linux only")
	os.Exit(1)
}
