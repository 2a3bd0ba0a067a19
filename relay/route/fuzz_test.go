package route

import (
	"encoding/json"
	"testing"

	"farhand/wire"
)

// FuzzHello: whatever a device says first is accepted or refused with a close
// code and a reason that fit a close frame, and what is accepted keeps the rules.
func FuzzHello(f *testing.F) {
	root := homeDir
	for _, h := range []wire.Hello{helloFor(nil, wire.DirectoryBrowse, wire.Files), helloFor(&root, wire.Shell)} {
		j, err := json.Marshal(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(`{"type":"HELLO","id":"h","ts":1.5,"payload":` + string(j) + `}`))
	}
	f.Add([]byte(`{"type":"HELLO","id":"h","payload":{"protocol_version":"2.0"}}`))
	f.Add([]byte(`{"payload":{"capabilities":null,"hardware_devices":[{}],"screen_resolution":[1,2]},"type":"HELLO","id":"x"}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, channel := range []wire.Channel{wire.Control, wire.Data} {
			h, no := parseHello(frame, channel)
			if no != nil {
				if no.code < 4400 || len(no.reason) > maxReason || !json.Valid([]byte(no.reason)) {
					t.Fatalf("%d %q", no.code, no.reason)
				}
				continue
			}
			if !machineIDPattern.MatchString(h.MachineID) || (channel == wire.Data) != (h.AllowedRoot != nil) || h.id == "" {
				t.Fatalf("%+v", h)
			}
			h.acknowledge(nil, nil, grantable(h.Capabilities), nil)
		}
	})
}

// FuzzCommandTimeout: no body makes a deadline that is none.
func FuzzCommandTimeout(f *testing.F) {
	for _, s := range []string{`{}`, `{"timeout_seconds":1e308}`, `{"timeout_seconds":-0}`, `{"timeout_seconds":Inf}`, `{"timeout_seconds":0.0000000001}`, `[`} {
		f.Add([]byte(s))
	}
	s := &Server{timing: standard}
	f.Fuzz(func(t *testing.T, body []byte) {
		if d := s.commandTimeout(body); d < standard.commandMargin || d.Seconds() > ackCommandTimeout+10 {
			t.Fatalf("%v", d)
		}
	})
}

// FuzzPaths: within is about whole components, and a cleaned root never climbs.
func FuzzPaths(f *testing.F) {
	f.Add("/home/pi/a", "/home/pi")
	f.Add("/home/pix", "/home/pi")
	f.Add("/a/../../b", "/")
	f.Fuzz(func(t *testing.T, p, root string) {
		c, err := cleanRoot(p)
		if err != nil {
			return
		}
		if c[0] != '/' || within(c, root) && len(root) > 1 && len(c) < len(root)-1 {
			t.Fatalf("%q within %q", c, root)
		}
		if again, err := cleanRoot(c); err != nil || again != c {
			t.Fatalf("%q becomes %q", c, again)
		}
	})
}
