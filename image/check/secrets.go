package check

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"

	"farhand/image/layout"
)

// What a secret begins with, and what it looks like as a whole: programs hold
// the beginnings, too. The relay's tokens and keys have at least 32 characters
// after a prefix that names their kind.
var forms = []struct {
	begin []byte
	whole *regexp.Regexp
	what  string
}{
	{[]byte("fh_"), regexp.MustCompile(`^fh_[a-z]{2}_[A-Za-z0-9_-]{32}`), "a token or claim key of a relay"},
	{[]byte("-----BEGIN "), regexp.MustCompile(`^-----BEGIN ([A-Z]+ )?PRIVATE KEY-----\r?\n[A-Za-z0-9+/=]{40}`), "a private key"},
}

// longest is more than what decides of a secret.
const longest = 128

// secrets reads the partitions through.
func (c *card) secrets(ctx context.Context) {
	for _, n := range []int{layout.Autoboot, layout.BootA, layout.SystemA, layout.Data} {
		p := c.part(n)
		b := make([]byte, mib+longest)
		for at := int64(0); at < p.Size() && ctx.Err() == nil; at += mib {
			got, err := p.ReadAt(b, at)
			if err != nil && !errors.Is(err, io.EOF) {
				c.fail("partition %d: %w", n, err)
				return
			}
			for _, f := range forms {
				if off := find(b[:got], f.begin, f.whole); off >= 0 && off < mib {
					c.fail("partition %d holds %s, at byte %d", n, f.what, at+int64(off))
				}
			}
		}
	}
}

// find is the offset of the first whole secret, -1 for none.
func find(b, begin []byte, whole *regexp.Regexp) int {
	for from := 0; ; {
		i := bytes.Index(b[from:], begin)
		if i < 0 {
			return -1
		}
		if whole.Match(b[from+i : min(from+i+longest, len(b))]) {
			return from + i
		}
		from += i + 1
	}
}
