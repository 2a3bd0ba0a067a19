package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

func TestAwait(t *testing.T) {
	text := NewText()
	found := make(chan []string, 1)
	go func() {
		m, err := text.Await(t.Context(), 0, regexp.MustCompile(`code ([A-Z-]+)\n`))
		if err != nil {
			t.Error(err)
		}
		found <- m
	}()
	io.WriteString(text, "booting\r\n")
	io.WriteString(text, "\x1b[1;31mco")
	io.WriteString(text, "de\x1b[0m BCDF-GHJK\r\nmore")
	if m := <-found; len(m) != 2 || m[1] != "BCDF-GHJK" {
		t.Errorf("the match is %q", m)
	}
	mark := text.Mark()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err := text.Await(ctx, mark, regexp.MustCompile(`code`))
	if err == nil || !strings.Contains(err.Error(), "enough") || !strings.Contains(err.Error(), "BCDF-GHJK") {
		t.Errorf("what never came is told as %v", err)
	}
	if s := text.String(); !strings.Contains(s, "] code BCDF-GHJK\nmore") || strings.ContainsAny(s, "\r\x1b") {
		t.Errorf("the text is %q", s)
	}
}

func TestTextIsBounded(t *testing.T) {
	text := NewText()
	line := strings.Repeat("x", 99) + "\n"
	for range maxText/len(line) + 10 {
		io.WriteString(text, line)
	}
	mark := text.Mark()
	fmt.Fprintln(text, "the last line")
	if _, err := text.Await(t.Context(), mark, regexp.MustCompile(`^the last`)); err != nil {
		t.Error(err)
	}
	if len(text.buf) > maxText {
		t.Errorf("%d bytes are kept", len(text.buf))
	}
	if !strings.HasSuffix(text.Tail(), "the last line") || strings.Count(text.Tail(), "\n") != tailLines-1 {
		t.Errorf("the tail has %d lines", strings.Count(text.Tail(), "\n")+1)
	}
}

// The board's arguments name the machine, and nothing that would ask the host
// for more.
func TestArguments(t *testing.T) {
	for kind, want := range map[Kind]string{Virt: "virt -cpu cortex-a72 -smp 2", Pi3B: "-m 1024 -M raspi3b", Generic: "virt -cpu cortex-a72", PC: "-M q35,smm=on"} {
		b := Board{Kind: kind}
		if got := strings.Join(b.machine(""), " "); !strings.Contains(got, want) || !strings.Contains(got, "-nodefaults") {
			t.Errorf("%v is started by %s", kind, got)
		}
		if got := strings.Join(Network(kind, "tcp::1-:22"), " "); !strings.Contains(got, "hostfwd=tcp::1-:22") {
			t.Errorf("%v has the network %s", kind, got)
		}
	}
	if a, b := NewSerial(), NewSerial(); a == b || len(a) != 16 {
		t.Errorf("serial numbers are %s and %s", a, b)
	}
}
