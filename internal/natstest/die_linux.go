package natstest

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the kernel end the server if the test process is killed.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
