package rescue

import (
	"strings"
	"testing"
)

func TestNetworkFile(t *testing.T) {
	text := NetworkFile()
	for _, want := range []string{"WLANInterfaceType=ap\n", "Address=10.42.0.1/24\n", "DHCPServer=yes\n", "DNS=10.42.0.1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
