package client_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"farhand/client/clienttest"
	"farhand/wire"
)

// Edits at once are all made, one after the other.
func TestEditApproval(t *testing.T) {
	r, c := setup(t)
	ctx := t.Context()
	const editors = 4
	var tasks sync.WaitGroup
	for i := range editors {
		tasks.Go(func() {
			g, err := c.EditApproval(ctx, "pi", func(allow *wire.Ceiling) error {
				devices := []wire.DeviceGrant{}
				if allow.Devices != nil {
					devices = *allow.Devices
				}
				lines := []string{fmt.Sprint("GPIO", i)}
				devices = append(devices, wire.DeviceGrant{Pattern: "gpio:*", Lines: &lines})
				allow.Devices = &devices
				return nil
			})
			if err != nil || g.MachineID != clienttest.MachineID {
				t.Errorf("%+v, %v", g, err)
			}
		})
	}
	tasks.Wait()
	g, err := c.Grants(ctx, "pi")
	if err != nil || g.Approval.Devices == nil || len(*g.Approval.Devices) != editors || g.Revision != fmt.Sprint(editors) {
		t.Fatalf("%+v, %v", g, err)
	}
	full := errors.New("enough")
	if _, err := c.EditApproval(ctx, "pi", func(*wire.Ceiling) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v, want the edit's error", err)
	}
	before := count(r.Calls(), "PUT /api/machines/"+clienttest.MachineID+"/approval")
	if _, err := c.EditApproval(ctx, "pi", func(*wire.Ceiling) error { return nil }); err != nil {
		t.Error(err)
	}
	if n := count(r.Calls(), "PUT /api/machines/"+clienttest.MachineID+"/approval"); n != before {
		t.Error("an edit that changes nothing was written")
	}
	if err := c.SetApproval(ctx, "pi", wire.Ceiling{}); err != nil {
		t.Error(err)
	}
	if got := r.Body("PUT /api/machines/pi/approval"); got != "{}" {
		t.Errorf("sent %s", got)
	}
	if _, err := c.EditApproval(ctx, "mars", nil); !errors.Is(err, wire.MachineNotAttached) {
		t.Errorf("%v, want MACHINE_NOT_ATTACHED", err)
	}
}

// Somebody who is always faster is an error in the end, not an endless loop.
func TestEditApprovalGivesUp(t *testing.T) {
	_, c := setup(t)
	n := 0
	_, err := c.EditApproval(t.Context(), "pi", func(allow *wire.Ceiling) error {
		n++
		allow.Roots = &[]string{"/x"}
		return c.SetApproval(t.Context(), "pi", wire.Ceiling{Roots: &[]string{fmt.Sprint("/", n)}})
	})
	if wire.CodeOf(err) != "CONFLICT" || n != 8 {
		t.Errorf("after %d attempts: %v", n, err)
	}
}
