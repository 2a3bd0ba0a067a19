package shim_test

import (
	"context"
	"testing"

	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// TestEndDuringQuick: the first call that was expected to be quick and isn't has
// the first reader of the socket. Its end is seen all the same, and ends the call.
func TestEndDuringQuick(t *testing.T) {
	for how, end := range map[string]func(*shimtest.Socket){
		"lost":    (*shimtest.Socket).Drop,
		"closed":  func(s *shimtest.Socket) { s.Close(1001, "") },
		"revoked": func(s *shimtest.Socket) { s.Revoke(wire.ReasonUserRevoked) },
	} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			begun, ended := make(chan struct{}), make(chan struct{})
			r.serve(shim.Table{wire.TFileList: {Quick: true, Handle: func(ctx context.Context, _ *shim.Call) (any, error) {
				close(begun)
				<-ctx.Done()
				close(ended)
				return nil, context.Cause(ctx)
			}}})
			s, _ := r.data(r.start(), "s")
			s.Request(wire.TFileList, wire.FileList{Path: "x"})
			<-begun
			end(s)
			r.within(ended, "the call goes on")
		})
	}
}

// within waits for c.
func (r *rig) within(c <-chan struct{}, otherwise string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.platform.Patience)
	defer cancel()
	select {
	case <-c:
	case <-ctx.Done():
		r.t.Fatal(otherwise)
	}
}
