package canary

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

func utf16(s string, big bool) []byte {
	var b []byte
	for _, c := range []byte(s) {
		if big {
			b = append(b, 0, c)
		} else {
			b = append(b, c, 0)
		}
	}
	return b
}

func deflated(t *testing.T, s []byte, to func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var b bytes.Buffer
	w := to(&b)
	if _, err := w.Write(s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every form is found, around whatever it stands, and nothing where nothing is.
func TestForms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	secret := Text(rng, 12)
	window := secret[3 : 3+Window]
	noise := func(n int) string { return Text(rng, n) + "~" }
	gz := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	zl := func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
	fl := func(w io.Writer) io.WriteCloser {
		z, err := flate.NewWriter(w, flate.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	body := []byte(strings.Repeat("some text around it, ", 20) + window + " and after it")
	forms := map[string][]byte{
		"raw": []byte(noise(50) + window + noise(30)), "hex": []byte(noise(9) + hex.EncodeToString([]byte(window))),
		"HEX":      []byte(strings.ToUpper(hex.EncodeToString([]byte(window))) + noise(5)),
		"utf-16le": append([]byte(noise(7)), utf16(window, false)...), "utf-16be": append([]byte(noise(8)), utf16(window, true)...),
		"gzip": append([]byte(noise(11)), deflated(t, body, gz)...), "zlib": append([]byte(noise(12)), deflated(t, body, zl)...),
		"deflate":            deflated(t, body, fl),
		"base64, gzip":       []byte(`{"data":"` + base64.StdEncoding.EncodeToString(deflated(t, body, gz)) + `"}`),
		"base64, zlib":       []byte(`{"data":"` + base64.URLEncoding.EncodeToString(deflated(t, body, zl)) + `"}`),
		"hex, zlib":          []byte(`{"data":"` + hex.EncodeToString(deflated(t, body, zl)) + `"}`),
		"json, utf-16le":     fmt.Appendf(nil, `{"content":"%s"}`, strings.ReplaceAll(string(utf16(window, false)), "\x00", `\u0000`)),
		"gzip, base64, zlib": deflated(t, []byte(`{"data":"`+base64.StdEncoding.EncodeToString(deflated(t, body, zl))+`"}`), gz),
	}
	for before := range 3 {
		forms[fmt.Sprintf("base64 after %d", before)] = []byte("~" + base64.StdEncoding.EncodeToString([]byte("~~~"[:before]+window+"?~")))
		forms[fmt.Sprintf("base64url after %d", before)] = []byte("~" + base64.RawURLEncoding.EncodeToString([]byte("~~~"[:before]+window+"?~")))
	}
	set := New(map[string]string{"it": secret, "other": Text(rng, 40)})
	for form, data := range forms {
		hits := set.Find(data)
		want, _, _ := strings.Cut(form, " after")
		var found bool
		for _, h := range hits {
			if h.Secret != "it" {
				t.Errorf("%s: %v", form, h)
			}
			// What has no special characters is both alphabets'.
			found = found || strings.TrimSuffix(h.Form, "url") == strings.TrimSuffix(want, "url") || strings.HasPrefix(h.Form, want+",")
			found = found || h.Form == want+", raw"
		}
		if !found {
			t.Errorf("%s: found %v", form, hits)
		}
		// One byte of the window less, and it isn't there any more.
		if want == "raw" {
			if hits := set.Find(bytes.Replace(data, []byte(window), []byte(window[:Window-1]+"~"), 1)); len(hits) > 0 {
				t.Errorf("of 7 bytes: %v", hits)
			}
		}
	}
	for range 200 {
		b := make([]byte, 4096)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if hits := set.Find(append(b, noise(4096)...)); len(hits) > 0 {
			t.Fatalf("in noise: %v", hits)
		}
	}
}
