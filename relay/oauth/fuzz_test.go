package oauth

import (
	"net/http/httptest"
	"strings"
	"testing"

	"farhand/wire"
)

func FuzzParams(f *testing.F) {
	for _, s := range [][2]string{
		{"application/x-www-form-urlencoded", "grant_type=refresh_token&client_id=x"},
		{"application/json", `{"grant_type":"refresh_token","x":null}`},
		{"application/json; charset=utf-8", `{"a":{"b":[1,2]}}`},
		{"text/plain", "x"}, {"", ""}, {"a/b;c=\"", "%zz"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, kind, body string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		p, err := params(r)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if e, ok := err.(*oauthError); err != nil && (!ok || e.status != 400) {
			t.Fatalf("%v", err)
		}
	})
}

func FuzzSecrets(f *testing.F) {
	where := ref{newOwner(), newID()}
	f.Add(mint(prefixAccess, where, secretSize))
	f.Add(mint(prefixClaim, where, claimSize))
	f.Add(mint(prefixDevice, ref{id: where.id}, secretSize))
	f.Add(mintRefresh(refresh{where, randomBytes(lineageSize), 7}))
	f.Add("fh_rt_")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if r, ok := parseRefresh(text); ok {
			if len(r.owner) != 2*ownerSize || len(r.id) != 2*idSize || len(r.lineage) != lineageSize {
				t.Fatalf("%+v", r)
			}
			// One secret has one text, so hashes can't be dodged.
			raw, _ := decode(text, prefixRefresh, refreshSize)
			if join(prefixRefresh, raw) != text {
				t.Fatalf("%q has a second text", text)
			}
		}
		for prefix, size := range map[string][2]int{prefixAccess: {ownerSize, secretSize}, prefixDevice: {0, secretSize}, prefixClaim: {ownerSize, claimSize}} {
			if r, ok := parse(text, prefix, size[0], size[1]); ok && (len(r.owner) != 2*size[0] || len(r.id) != 2*idSize) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func FuzzReadCode(f *testing.F) {
	f.Add("BCDF-GHJK")
	f.Add("ﬁ ß İ")
	f.Fuzz(func(t *testing.T, text string) {
		code, ok := readCode(text)
		if ok != (len(code) == userCodeLength) || strings.Trim(code, userCodeAlphabet) != "" {
			t.Fatalf("%q, %v", code, ok)
		}
		if ok {
			if again, _ := readCode(showCode(code)); again != code {
				t.Fatalf("%q reads back as %q", code, again)
			}
		}
	})
}

func FuzzHash(f *testing.F) {
	f.Add("$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2id$v=19$m=-1,t=3,p=4$$")
	f.Fuzz(func(t *testing.T, text string) {
		cost, salt, tag, err := parseHash(text)
		if err == nil && (cost.Memory == 0 || cost.Time == 0 || cost.Threads == 0 || len(salt) < 8 || len(tag) != tagSize) {
			t.Fatalf("%+v %x %x", cost, salt, tag)
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("Bench Pi", "pi-1")
	f.Add("", ":::")
	f.Fuzz(func(t *testing.T, display, id string) {
		if !validMachineID(id) {
			return
		}
		if name := nameOf(display, id); !validName(name) {
			t.Fatalf("nameOf(%q, %q) = %q", display, id, name)
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a<b>\x00\u202e\xff", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, 200))
		got := wire.Clean(s, limit)
		if strings.ContainsAny(got, "<>\x00\u202e\n") || len([]rune(got)) > limit {
			t.Fatalf("wire.Clean(%q) = %q", s, got)
		}
	})
}

func FuzzCeiling(f *testing.F) {
	f.Add(`{"capabilities":["files","shell"],"devices":[{"pattern":"serial:*","lines":["1"],"ops":null}],"roots":["/data/../work//"]}`)
	f.Add(`{"capabilities":null,"devices":[null],"roots":[""]}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var c wire.Ceiling
		if readJSON(r, &c) != nil {
			return
		}
		out, err := checkCeiling(c)
		if err != nil {
			return
		}
		// Putting in order never lifts a bound.
		if (c.Capabilities == nil) != (out.Capabilities == nil) || (c.Devices == nil) != (out.Devices == nil) || (c.Roots == nil) != (out.Roots == nil) {
			t.Fatalf("%+v became %+v", c, out)
		}
	})
}
