package guest_test

import (
	"os"
	"testing"

	"farhand/internal/testenv"
)

// TestLabKernel says that what families build on is there.
func TestLabKernel(t *testing.T) {
	testenv.Lab(t)
	for _, path := range []string{
		"/sys/kernel/config/gpio-sim",
		"/sys/kernel/config/usb_gadget",
		"/sys/class/udc/dummy_udc.0",
		"/sys/class/udc/dummy_udc.3",
		"/sys/bus/usb/drivers/ftdi_sio",
		"/sys/bus/usb/drivers/cdc_acm",
		"/sys/bus/usb/drivers/usblp",
		"/dev/virtio-ports/farhand.requests",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
