//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func (o *options) execHelperCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "exec-helper",
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return errors.New("commands run on Linux only") },
	}
}
