//go:build !linux

package systemd

import "os"

// Store is never made where there is no systemd.
type Store struct{}

// NewStore is nil.
func NewStore(string) *Store { return nil }

// Put does nothing.
func (*Store) Put(string, uintptr) error { return nil }

// Keep does nothing.
func (*Store) Keep(string, uintptr) error { return nil }

// Remove does nothing.
func (*Store) Remove(string) error { return nil }

// Restored is nothing.
func Restored(func(string) string) (map[string]*os.File, error) { return nil, nil }
