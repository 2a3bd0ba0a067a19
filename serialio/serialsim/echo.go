package serialsim

import "io"

// Echo sends back every byte. It reads on only when what it sent was taken, so
// a user that doesn't read is held back, as by flow control.
type Echo struct{}

// Serve echoes until the port is gone.
func (Echo) Serve(line io.ReadWriter) {
	// Either error means that the port is gone.
	_, _ = io.Copy(struct{ io.Writer }{line}, struct{ io.Reader }{line})
}
