package cli

import (
	"encoding/hex"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// dataForm says how bytes stand on the command line.
type dataForm struct{ raw, hex bool }

func (f *dataForm) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.raw, "raw", false, `take every character as it is, backslashes too`)
	cmd.Flags().BoolVar(&f.hex, "hex", false, "bytes are pairs of hexadecimal digits, those that come back too")
	cmd.MarkFlagsMutuallyExclusive("raw", "hex")
}

// bytes reads an argument.
func (f dataForm) bytes(s string) ([]byte, error) {
	switch {
	case s == "":
		return nil, nil
	case f.raw:
		return []byte(s), nil
	case f.hex:
		b, err := hex.DecodeString(strings.NewReplacer(" ", "", ":", "", "\n", "").Replace(s))
		if err != nil {
			return nil, usage("%q is not pairs of hexadecimal digits", s)
		}
		return b, nil
	}
	return unescape(s)
}

// maxSerial bounds what one operation writes: more than the device takes at
// once, so that the device says so, and little enough to hold.
const maxSerial = 4 << 20

// data reads DATA; "-" is standard input, byte for byte unless --hex.
func (a *app) data(arg string, f dataForm) ([]byte, error) {
	if arg != "-" {
		return f.bytes(arg)
	}
	b, err := io.ReadAll(io.LimitReader(a.env.Stdin, maxSerial+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSerial {
		return nil, usage("standard input has more than %s", size(maxSerial))
	}
	if f.hex {
		return f.bytes(string(b))
	}
	return b, nil
}

// unescape replaces \n \r \t \0 \\ \xHH. A backslash before anything else is an
// error: it would otherwise be sent, or not, to an instrument by guess.
func unescape(s string) ([]byte, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		if i == len(s) {
			return nil, usage(`%q ends in a single backslash; write \\ or use --raw`, s)
		}
		switch s[i] {
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case '0':
			out = append(out, 0)
		case '\\':
			out = append(out, '\\')
		case 'x':
			if i+2 >= len(s) {
				return nil, usage(`\x needs two hexadecimal digits in %q`, s)
			}
			b, err := hex.DecodeString(s[i+1 : i+3])
			if err != nil {
				return nil, usage(`\x needs two hexadecimal digits in %q`, s)
			}
			out = append(out, b[0])
			i += 2
		default:
			return nil, usage(`\%c in %q stands for nothing; write \\ or use --raw`, s[i], s)
		}
	}
	return out, nil
}
