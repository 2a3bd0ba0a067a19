//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "init is process 1 of a Linux guest")
	os.Exit(1)
}
