//go:build !linux

package natstest

import "os/exec"

func dieWithUs(*exec.Cmd) {}
