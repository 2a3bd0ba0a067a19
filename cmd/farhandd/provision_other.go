//go:build !linux

package main

import (
	"context"
	"fmt"
	"runtime"
)

func (o *options) provisionBoot(context.Context) error  { return notHere() }
func (o *options) provisionServe(context.Context) error { return notHere() }

func notHere() error { return fmt.Errorf("the appliance runs Linux, not %s", runtime.GOOS) }
