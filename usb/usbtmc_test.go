package usb

import "testing"

// An instrument that says without end that it isn't ready makes no answer
// without end.
func TestRecoveryTellsSoManySteps(t *testing.T) {
	var r recovery
	for range 1000 {
		r.tell("check clear")
	}
	if n := len(r.result.Steps); n != recoverySteps {
		t.Errorf("%d steps", n)
	}
}
