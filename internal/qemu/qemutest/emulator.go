// Package qemutest plays the monitor of a QEMU that isn't there.
package qemutest

import (
	"bufio"
	"fmt"
	"net"
	"testing"
)

// Emulator answers one request after the other with what is given, and tells
// what it was asked. After the last answer it ends.
func Emulator(t *testing.T, answers ...string) (net.Conn, <-chan string) {
	t.Helper()
	ours, theirs := net.Pipe()
	asked := make(chan string, len(answers))
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	go func() {
		defer close(asked)
		defer theirs.Close()
		fmt.Fprintln(theirs, `{"QMP": {"version": {}, "capabilities": []}}`)
		in := bufio.NewScanner(theirs)
		for _, a := range answers {
			if !in.Scan() {
				return
			}
			asked <- in.Text()
			fmt.Fprintln(theirs, a)
		}
	}()
	return ours, asked
}
