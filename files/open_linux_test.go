package files

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

func TestOpenFile(t *testing.T) {
	b := newBench(t)
	b.put("a.gcode", "G28\n")
	b.link("a.gcode", "in")
	b.link(b.out+"/secret", "out")
	b.must(unix.Mkfifo(b.in("fifo"), 0o600))
	for _, path := range []string{"a.gcode", "in"} {
		f, size, err := b.OpenFile(t.Context(), path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		content, err := io.ReadAll(f)
		if err != nil || size != 4 || string(content) != "G28\n" {
			t.Errorf("%s: %d bytes, %q, %v", path, size, content, err)
		}
		b.must(f.Close())
	}
	for path, want := range map[string]wire.Code{
		"absent": wire.PathNotFound, "out": wire.PathOutsideAllowedRoot, "../outside/secret": wire.PathOutsideAllowedRoot,
		".": wire.InternalError, "fifo": wire.InternalError, "a\x00b": wire.PathInvalidChars,
	} {
		if f, _, err := b.OpenFile(t.Context(), path); !errors.Is(err, want) {
			t.Errorf("%q: %v %v, want %s", path, f, err, want)
		}
	}
}
