package screen

import (
	"os"
	"testing"
	"unsafe"

	"farhand/internal/testenv"
)

// The kernel writes as many bytes as its own structures have (linux/fb.h).
func TestSizesOfTheKernel(t *testing.T) {
	if n := unsafe.Sizeof(fbVarScreenInfo{}); n != 160 {
		t.Errorf("fb_var_screeninfo has %d bytes", n)
	}
	if n := unsafe.Sizeof(fbFixScreenInfo{}); unsafe.Sizeof(uintptr(0)) == 8 && n != 80 {
		t.Errorf("fb_fix_screeninfo has %d bytes", n)
	}
}

// What isn't a framebuffer is told from one.
func TestNoFramebuffer(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/fb0")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := framebuffer(f); err == nil {
		t.Error("a file is taken for a framebuffer")
	}
	if _, _, ok := windowSize(f); ok {
		t.Error("a file is taken for a terminal")
	}
}

// A real one is drawn to, and read back.
func TestFramebufferOfTheKernel(t *testing.T) {
	f, err := openDevice("/dev/fb0")
	testenv.Need(t, "framebuffer", err == nil, "there is no /dev/fb0: modprobe vkms, as root")
	defer f.Close()
	how, err := framebuffer(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := how.check(); err != nil {
		t.Fatal(err)
	}
	c, err := pairingPage().draw(how.width, how.height, dark())
	if err != nil {
		t.Fatal(err)
	}
	if err := how.write(f, c); err != nil {
		t.Fatal(err)
	}
	m := make(memory, how.length)
	if _, err := f.ReadAt(m, 0); err != nil {
		t.Fatal(err)
	}
	if got := decode(t, how.see(m)); got != pairing().VerificationURIComplete {
		t.Errorf("the display's code holds %q", got)
	}
}
