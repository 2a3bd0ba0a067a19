package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/wire"
)

func TestUSBNumber(t *testing.T) {
	for text, want := range map[string]wire.USBNumber{`129`: 129, `"129"`: 129, `"0x81"`: 129, `" 0X81 "`: 129, `-1`: -1, `null`: 7} {
		n := wire.USBNumber(7)
		if err := json.Unmarshal([]byte(text), &n); err != nil || n != want {
			t.Errorf("%s is %d, %v", text, n, err)
		}
	}
	for _, text := range []string{`""`, `"x"`, `1.5`, `true`, `[]`, `{}`, `99999999999`, `"0x"`} {
		var n wire.USBNumber
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s is %d", text, n)
		}
	}
	if b, err := json.Marshal(wire.USBSend{Endpoint: 0x81}); err != nil || !strings.Contains(string(b), `"endpoint":129`) {
		t.Errorf("it is sent as %s, %v", b, err)
	}
}

// plainSend is USBSend without the decoder of its own.
type plainSend wire.USBSend

func FuzzUSBSend(f *testing.F) {
	for _, text := range []string{
		`{"interface":1,"endpoint":"0x02","data":"aGVsbG8=","zero_packet":true,"timeout_seconds":0.5,"detach_kernel_driver":true}`,
		`{"data":"\u0061GVsbG8=","data":null,"other":{"data":"x"}}`, `{"data":"aGVsbG8"}`, `{"data":12}`, `{"data":"a\nGVs"}`, `{"data":""}`,
		`null`, `[]`, `{`, `{"endpoint":"x"}`, `{"data":"aGVs" "b":1}`, ` {"alternate" : 1 } `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got wire.USBSend
		var want plainSend
		err, plain := got.UnmarshalJSON(b), json.Unmarshal(b, &want)
		if !json.Valid(b) {
			return // checked before it comes so far
		}
		if err == nil && plain != nil {
			t.Errorf("%q is taken, and should be %v", b, plain)
		}
		// Of several values of a key the last counts; encoding/json takes keys in
		// any case, and so finds more of them.
		once := strings.Count(strings.ToLower(string(b)), "data") <= 1 && !strings.Contains(string(b), `\u`)
		if once && plain == nil && strings.Contains(string(b), `"data"`) && !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%q has the data %q (%v), want %q", b, got.Data, err, want.Data)
		}
	})
}

func TestUSBSendDecodes(t *testing.T) {
	data := []byte(strings.Repeat("\x00\xff data", 1000))
	text := `{"interface":1,"endpoint":"0x02","alternate":null,"data":"` + base64.StdEncoding.EncodeToString(data) + `","zero_packet":true,"timeout_seconds":0.5}`
	var got wire.USBSend
	if err := got.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	one, half := wire.USBNumber(1), 0.5
	if diff := cmp.Diff(wire.USBSend{Interface: &one, Endpoint: 2, Data: data, ZeroPacket: true, TimeoutSeconds: &half}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{`[]`, `17`, `"text"`, `{"data":"not base64"}`, `{"data":12}`, `{"data":["x"]}`, `{"endpoint":true}`, `{`, ``, `{"data":"AA==}`} {
		if err := got.UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
