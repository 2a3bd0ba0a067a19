package daemon

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/config"
	"farhand/wire"
)

// TestAllowed: hardware.allow is a ceiling down to lines and operations, and one
// that can't be read keeps the daemon from starting rather than allow too much.
func TestAllowed(t *testing.T) {
	if grants, patterns, err := allowed(config.Config{}); grants != nil || patterns != nil || err != nil {
		t.Errorf("nothing configured: %v %v %v", grants, patterns, err)
	}
	if grants, patterns, err := allowed(config.Config{HardwareAllow: []string{}}); grants == nil || len(*grants) != 0 || patterns == nil || err != nil {
		t.Errorf("an empty list: %v %v %v", grants, patterns, err)
	}
	grants, patterns, err := allowed(config.Config{HardwareAllow: []string{"serial:*", "gpio:*;lines=17"}})
	want := &[]wire.DeviceGrant{{Pattern: "serial:*"}, {Pattern: "gpio:*", Lines: &[]string{"17"}}}
	if diff := cmp.Diff(want, grants) + cmp.Diff([]string{"serial:*", "gpio:*"}, patterns); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, _, err := allowed(config.Config{HardwareAllow: []string{"gpio:*;line=17"}}); err == nil {
		t.Error("a misspelt bound was taken")
	} else if _, ok := errors.AsType[*ConfigError](err); !ok {
		t.Errorf("a misspelt bound: %v", err)
	}
}
