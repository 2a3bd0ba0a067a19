//go:build !linux

package present

import "context"

// Arrivals waits for ctx: there is nothing to hear from here.
func Arrivals(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
