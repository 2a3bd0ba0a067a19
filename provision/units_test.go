package provision

import (
	"strings"
	"testing"

	"farhand/provision/rescue"
	"farhand/systemd/units"
)

// The helper's unit lets it talk to the rescue network, and to no other.
func TestUnitKnowsTheRescueNetwork(t *testing.T) {
	list, err := units.Files(units.Options{Appliance: true})
	if err != nil {
		t.Fatal(err)
	}
	want := "\nIPAddressDeny=any\nIPAddressAllow=" + rescue.Prefix().Masked().String() + "\n"
	for _, f := range list {
		if strings.HasSuffix(f.Path, "/"+units.Provisiond) && strings.Contains(f.Content, want) {
			return
		}
	}
	t.Errorf("no %q in %s", want, units.Provisiond)
}
