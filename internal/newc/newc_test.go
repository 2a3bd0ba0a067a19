package newc_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"farhand/internal/newc"
)

type found struct {
	mode string
	data string
}

// read parses an archive by the document that initramfs cites.
func read(t *testing.T, b []byte) (names []string, files map[string]found) {
	t.Helper()
	files = make(map[string]found)
	pos := 0
	field := func(i int) int {
		at := pos + 6 + 8*i
		n, err := strconv.ParseUint(string(b[at:at+8]), 16, 32)
		if err != nil {
			t.Fatalf("header at %d: %v", pos, err)
		}
		return int(n)
	}
	align := func() { pos = (pos + 3) &^ 3 }
	for {
		if pos+110 > len(b) || string(b[pos:pos+6]) != "070701" {
			t.Fatalf("no header at %d of %d: %s", pos, len(b), hex.EncodeToString(b[min(pos, len(b)):min(pos+8, len(b))]))
		}
		mode, size, nameSize := field(1), field(6), field(11)
		pos += 110
		name := strings.TrimRight(string(b[pos:pos+nameSize]), "\x00")
		pos += nameSize
		align()
		names = append(names, name)
		files[name] = found{strconv.FormatInt(int64(mode), 8), string(b[pos : pos+size])}
		pos += size
		align()
		if name == "TRAILER!!!" {
			if pos != len(b) {
				t.Errorf("%d bytes after the trailer", len(b)-pos)
			}
			return names, files
		}
	}
}

func TestArchive(t *testing.T) {
	host := filepath.Join(t.TempDir(), "odd")
	if err := os.WriteFile(host, []byte("12345"), 0o644); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := newc.NewWriter(&buf)
	for _, err := range []error{
		w.Bytes("/init", 0o755, []byte("x")),
		w.File("lab/suites/a", 0o700, host),
		w.Dir("lab/suites"),
		w.Dir("/dev"),
		w.Char("dev/console", 0o600, 5, 1),
		w.End(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	names, files := read(t, buf.Bytes())
	if got := strings.Join(names, " "); got != "init lab lab/suites lab/suites/a dev dev/console TRAILER!!!" {
		t.Errorf("the archive holds %s", got)
	}
	for name, want := range map[string]found{
		"init":         {"100755", "x"},
		"lab":          {"40755", ""},
		"lab/suites/a": {"100700", "12345"},
		"dev/console":  {"20600", ""},
	} {
		if files[name] != want {
			t.Errorf("%s is %+v, want %+v", name, files[name], want)
		}
	}
}

func TestMissingFile(t *testing.T) {
	w := newc.NewWriter(&bytes.Buffer{})
	if err := w.File("x", 0o644, filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a file that isn't there answers %v", err)
	}
}
