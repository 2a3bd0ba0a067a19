package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// byteHelp explains DATA in the help of the verbs that take it.
const byteHelp = `DATA are bytes in hexadecimal: 0x9f, 9f000100, de:ad or several arguments. With
--text it is text, in which \n \r \t \0 \\ and \xHH stand for bytes. @FILE is what
a file holds and - standard input, byte for byte.`

// byteForm says how bytes stand on the command line of the verbs that speak
// with chips and endpoints, and how those that come back are shown.
type byteForm struct{ text, hex, raw bool }

// addIn adds the flag for DATA, addOut those for what comes back.
func (f *byteForm) addIn(cmd *cobra.Command) {
	if cmd.Flags().Lookup("text") == nil {
		cmd.Flags().BoolVar(&f.text, "text", false, "DATA is text, not hexadecimal")
	}
}

func (f *byteForm) addOut(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.hex, "hex", false, "show what comes back in hexadecimal, on one line")
	flags.BoolVar(&f.raw, "raw", false, "write what comes back as it is (default unless to a terminal)")
	if text := flags.Lookup("text"); text != nil {
		text.Usage = "DATA is text, not hexadecimal, and so is what comes back"
	} else {
		flags.BoolVar(&f.text, "text", false, "show what comes back as text")
	}
	cmd.MarkFlagsMutuallyExclusive("hex", "raw")
}

// bytes reads DATA.
func (f byteForm) bytes(a *app, args []string) ([]byte, error) {
	if len(args) == 1 {
		name, isFile := strings.CutPrefix(args[0], "@")
		switch {
		case args[0] == "-":
			return readData(a.env.Stdin, "standard input")
		case isFile && name != "":
			file, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			defer file.Close()
			return readData(file, name)
		}
	}
	if f.text {
		return unescape(strings.Join(args, " "))
	}
	return hexBytes(args...)
}

func readData(r io.Reader, name string) ([]byte, error) {
	if r == nil {
		return nil, usage("there is no standard input")
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSerial+1))
	if err == nil && len(b) > maxSerial {
		err = usage("%s has more than %s", name, size(maxSerial))
	}
	return b, err
}

// hexBytes reads 0x9f, 9f000100, de:ad, "de ad" and single digits.
func hexBytes(args ...string) ([]byte, error) {
	out := []byte{}
	for _, arg := range args {
		for _, part := range strings.FieldsFunc(arg, func(r rune) bool { return r == ':' || r == ',' || unicode.IsSpace(r) }) {
			digits := strings.TrimPrefix(strings.TrimPrefix(part, "0x"), "0X")
			if len(digits) == 1 {
				digits = "0" + digits
			}
			b, err := hex.DecodeString(digits)
			if err != nil || digits == "" {
				return nil, usage("%q is no bytes in hexadecimal, such as 0x9f, 9f00 or de:ad; --text takes text", part)
			}
			out = append(out, b...)
		}
	}
	return out, nil
}

// isHex says whether an argument can be DATA.
func isHex(s string) bool {
	if s == "-" || strings.HasPrefix(s, "@") {
		return true
	}
	b, err := hexBytes(s)
	return err == nil && len(b) > 0
}

// printBytes shows what came back: as it is, as text, as hexadecimal, and to a
// terminal as a dump unless asked otherwise.
func (a *app) printBytes(b []byte, f byteForm) error {
	text := ""
	switch {
	case f.hex:
		text = hex.EncodeToString(b) + "\n"
	case f.text && a.style.outTTY && !f.raw:
		if text = visible(b); len(b) > 0 && b[len(b)-1] != '\n' {
			text += "\n"
		}
	case a.style.outTTY && !f.raw:
		text = dump(b, a.style.width())
	default:
		_, err := a.env.Stdout.Write(b)
		return err
	}
	_, err := io.WriteString(a.env.Stdout, text)
	return err
}

// dump is what hex.Dump writes, with fewer bytes a line where the terminal is too
// narrow for that.
func dump(b []byte, width int) string {
	if width <= 0 || width >= len("00000000  ")+16*len(" 00")+len("   |................|")-1 {
		return hex.Dump(b)
	}
	each := 8
	if width < len("00000000  ")+8*len("00 ")+len(" |........|") {
		each = 4
	}
	var out strings.Builder
	for at := 0; at < len(b); at += each {
		piece := b[at:min(at+each, len(b))]
		text := make([]byte, len(piece))
		for i, c := range piece {
			if text[i] = c; c < ' ' || c > '~' {
				text[i] = '.'
			}
		}
		fmt.Fprintf(&out, "%08x  %-*s  |%s|\n", at, 3*each-1, spaced(hex.EncodeToString(piece)), text)
	}
	return out.String()
}

// visible is text from outside, safe to show on a terminal: lines stay lines,
// and what can't be shown is written as \xHH.
func visible(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == '\n' || r == '\t':
			out.WriteByte(b[0])
		case r == '\r' && len(b) > 1 && b[1] == '\n':
		case r == utf8.RuneError && n <= 1, !unicode.IsPrint(r):
			for _, c := range b[:n] {
				out.WriteString(`\x` + hex.EncodeToString([]byte{c}))
			}
		default:
			out.WriteString(string(b[:n]))
		}
		b = b[n:]
	}
	return out.String()
}
