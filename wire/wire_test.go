package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCodeIsAnError(t *testing.T) {
	err := fmt.Errorf("line 5: %w", Errorf(HardwareBusy, "held by %s", "s-1").With("holder", "s-1"))
	if !errors.Is(err, HardwareBusy) || errors.Is(err, DeviceGone) {
		t.Error("errors.Is must find the code through every wrapping")
	}
	if got := CodeOf(err); got != HardwareBusy {
		t.Errorf("CodeOf = %s", got)
	}
	if got := AsError(fmt.Errorf("pin: %w", PathNotFound)); got.Code != PathNotFound || got.Message != "pin: PATH_NOT_FOUND" {
		t.Errorf("AsError = %+v", got)
	}
	if CodeOf(errors.New("x")) != InternalError || CodeOf(nil) != "" {
		t.Error("CodeOf of a foreign error or nil")
	}
}

func TestDecodeEnvelope(t *testing.T) {
	for name, c := range map[string]struct {
		frame string
		want  Envelope
		fails bool
	}{
		"platform request":     {frame: `{"type":"PING","id":"a","ts":1.5,"payload":{}}`, want: Envelope{Type: TPing, ID: "a", TS: 1.5, Payload: []byte(`{}`)}},
		"no payload":           {frame: `{"type":"PING","id":"a"}`, want: Envelope{Type: TPing, ID: "a", Payload: []byte(`{}`)}},
		"unknown keys":         {frame: `{"x":[1,{"y":"}"}],"type":"PING","id":"a","payload":{"z":"\"}"}}`, want: Envelope{Type: TPing, ID: "a", Payload: []byte(`{"z":"\"}"}`)}},
		"escaped id":           {frame: `{"type":"PI\u004eG","id":"\u00e9\ud83d\ude00"}`, want: Envelope{Type: TPing, ID: "é😀", Payload: []byte(`{}`)}},
		"null optionals":       {frame: `{"type":"PING","id":"a","version":null,"session_id":null,"pending_capacity":null}`, want: Envelope{Type: TPing, ID: "a", Payload: []byte(`{}`)}},
		"operator":             {frame: ` { "type" : "PING" , "id" : "a" , "session_id" : "s", "target_machine":"m" } `, want: Envelope{Type: TPing, ID: "a", SessionID: "s", TargetMachine: "m", Payload: []byte(`{}`)}},
		"empty id":             {frame: `{"type":"PING","id":""}`, fails: true},
		"numeric id":           {frame: `{"type":"PING","id":7}`, fails: true},
		"no type":              {frame: `{"id":"a"}`, fails: true},
		"array":                {frame: `[1]`, fails: true},
		"trailing data":        {frame: `{"type":"PING","id":"a"}{}`, fails: true},
		"cut off":              {frame: `{"type":"PING","id":"a`, fails: true},
		"empty":                {frame: ``, fails: true},
		"nested a long way":    {frame: `{"type":"PING","id":"a","payload":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`, fails: true},
		"raw control in id":    {frame: "{\"type\":\"PING\",\"id\":\"a\nb\"}", fails: true},
		"an id without an end": {frame: `{"type":"PING","id":"` + strings.Repeat("a", MaxID+1) + `"}`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeEnvelope([]byte(c.frame))
			if (err != nil) != c.fails {
				t.Fatalf("err = %v", err)
			}
			if diff := cmp.Diff(c.want, got); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A frame whose id stands before what is broken can still be answered.
func TestDecodeEnvelopeKeepsTheID(t *testing.T) {
	e, err := DecodeEnvelope([]byte(`{"type":"FILE_READ","id":"a","payload":` + strings.Repeat("[", 1000) + `}`))
	if err == nil || e.ID != "a" || e.Type != TFileRead {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestDecodeFileWrite(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		want    FileWrite
		reason  string
	}{
		"text":              {payload: `{"path":"/a","content":"x\ny\u00e9"}`, want: FileWrite{Path: "/a", Content: []byte("x\nyé"), Encoding: "utf-8"}},
		"base64":            {payload: `{"content":"AAEC","encoding":"base64","path":"b","create_parents":true}`, want: FileWrite{Path: "b", Content: []byte{0, 1, 2}, Encoding: "base64", CreateParents: true}},
		"escaped base64":    {payload: `{"path":"b","content":"\u0041AEC\/\/\/\/","encoding":"base64"}`, want: FileWrite{Path: "b", Content: []byte{0, 1, 2, 255, 255, 255}, Encoding: "base64"}},
		"empty":             {payload: `{"path":"b","content":"","encoding":null}`, want: FileWrite{Path: "b", Content: []byte{}, Encoding: "utf-8"}},
		"lone surrogate":    {payload: `{"path":"b","content":"\ud800x"}`, want: FileWrite{Path: "b", Content: []byte("\uFFFDx"), Encoding: "utf-8"}},
		"no padding":        {payload: `{"path":"b","content":"AAE","encoding":"base64"}`, reason: "invalid_base64"},
		"line break":        {payload: `{"path":"b","content":"AA\nEC","encoding":"base64"}`, reason: "invalid_base64"},
		"URL alphabet":      {payload: `{"path":"b","content":"____","encoding":"base64"}`, reason: "invalid_base64"},
		"unknown encoding":  {payload: `{"path":"b","content":"","encoding":"latin1"}`, reason: "invalid_payload"},
		"content missing":   {payload: `{"path":"b"}`, reason: "invalid_payload"},
		"content not text":  {payload: `{"path":"b","content":7}`, reason: "invalid_payload"},
		"flag not a bool":   {payload: `{"path":"b","content":"","create_parents":"yes"}`, reason: "invalid_payload"},
		"payload an array":  {payload: `[]`, reason: "invalid_payload"},
		"trailing garbage":  {payload: `{"path":"b","content":""}x`, reason: "invalid_payload"},
		"control character": {payload: "{\"path\":\"b\",\"content\":\"\x01\"}", reason: "invalid_payload"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeFileWrite([]byte(c.payload))
			if c.reason != "" {
				if e := AsError(err); err == nil || e.Details["reason"] != c.reason {
					t.Fatalf("err = %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFileContentsRoundTrip(t *testing.T) {
	all := make([]byte, 0, 1<<17)
	for i := range 1 << 17 {
		all = append(all, byte(i*7+i>>8))
	}
	for name, c := range map[string]struct {
		in   FileContents
		want string
	}{
		"base64":            {FileContents{Content: all, Encoding: EncodingBase64, SizeBytes: int64(len(all)), Truncated: true}, string(all)},
		"text":              {FileContents{Content: []byte("a\"\\\n\x01é😀\u2028<&>"), Encoding: EncodingUTF8}, "a\"\\\n\x01é😀\u2028<&>"},
		"broken":            {FileContents{Content: []byte("a\xffb\xc3"), Encoding: EncodingUTF8}, "a\uFFFDb\uFFFD"},
		"long":              {FileContents{Content: bytes.Repeat([]byte("é\n"), 50000), Encoding: EncodingUTF8}, strings.Repeat("é\n", 50000)},
		"all bytes as text": {FileContents{Content: all, Encoding: EncodingUTF8}, strings.ToValidUTF8(string(all), "\x00") /* compared below */},
		"empty":             {FileContents{Encoding: EncodingUTF8}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(&c.in) // also checks that it is JSON
			if err != nil {
				t.Fatal(err)
			}
			var written bytes.Buffer
			if err := c.in.WriteJSON(&written); err != nil {
				t.Fatal(err)
			}
			if size := c.in.JSONSize(); size < written.Len() || size > written.Len()+100 {
				t.Errorf("JSONSize is %d, written were %d", size, written.Len())
			}
			var out FileContents
			if err := json.Unmarshal(b, &out); err != nil {
				t.Fatal(err)
			}
			want := c.want
			if name == "all bytes as text" {
				var s struct{ Content string }
				if err := json.Unmarshal(b, &s); err != nil {
					t.Fatal(err)
				}
				want = s.Content
				if !strings.Contains(want, "\uFFFD") {
					t.Error("broken UTF-8 must become U+FFFD")
				}
			}
			if string(out.Content) != want || out.Encoding != c.in.Encoding || out.SizeBytes != c.in.SizeBytes || out.Truncated != c.in.Truncated {
				t.Errorf("got %.60q…", out.Content)
			}
		})
	}
}

func TestMessageEncode(t *testing.T) {
	three := 3
	f, err := Message{Type: TAck, ID: "a\"b", Payload: Ack{OK: true}, Version: "1.1", PendingCapacity: &three}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.WriteFrame(&b); err != nil {
		t.Fatal(err)
	}
	e, err := DecodeEnvelope(b.Bytes())
	if err != nil {
		t.Fatalf("%s: %v", b.Bytes(), err)
	}
	if e.Type != TAck || e.ID != `a"b` || *e.PendingCapacity != 3 || string(e.Payload) != `{"ok":true}` || e.TS < 1.6e9 {
		t.Errorf("%s", b.Bytes())
	}
	b.Reset()
	f, err = Message{Type: TFileContents, ID: "a", Payload: &FileContents{Content: []byte("x"), Encoding: EncodingBase64}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteFrame(&b); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) || f.Size() < b.Len() {
		t.Errorf("%s", b.Bytes())
	}
}

func TestMethodTable(t *testing.T) {
	for _, m := range Methods() {
		if got, ok := MethodOf(m.Request); !ok || got != m {
			t.Errorf("%s is filed under another type", m.Request)
		}
		if m.Response == "" && !m.OneWay() || m.Channel == 0 {
			t.Errorf("%s: incomplete", m.Request)
		}
		if IsAnswer(m.Request) {
			t.Errorf("%s counts as an answer", m.Request)
		}
		if !m.OneWay() && !IsAnswer(m.Response) {
			t.Errorf("%s doesn't count as an answer", m.Response)
		}
	}
}

func TestMayDeviceSend(t *testing.T) {
	for _, c := range []struct {
		t       Type
		granted Capabilities
		want    bool
	}{
		{THello, nil, true}, {TStatus, nil, true}, {TError, nil, true}, {TPong, nil, true}, {TAck, nil, true},
		{TFileContents, nil, false}, {TFileContents, Capabilities{Files}, true},
		{TCommandResult, Capabilities{Files}, false}, {TCommandResult, Capabilities{Shell}, true},
		{TLocalLLMCompletionChunk, Capabilities{Files}, false}, {TLocalLLMCompletionChunk, Capabilities{LocalLLM}, true},
		{THardwareResult, Capabilities{Files, Shell}, false}, {THardwareResult, Capabilities{HardwareI2C}, true},
		{TAuditVerifyResponse, nil, false}, {TPing, Capabilities{Files}, false}, {TScreenshotResponse, Capabilities{ComputerUse}, false},
		{TRecordingStep, Capabilities{Recording}, false}, {"NEW_TYPE", Capabilities{Files}, false}, {TSessionRevoked, nil, false},
	} {
		if got := MayDeviceSend(c.t, c.granted); got != c.want {
			t.Errorf("MayDeviceSend(%s, %v) = %v", c.t, c.granted, got)
		}
	}
}

func FuzzFields(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"a":"\\\"","b":[{"c":null}]}`, `{"a":tru}`, `{"":{}}`, ` {"a" : -1e5 }`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := make(map[string]string)
		err := Fields(b, func(key string, raw []byte) error {
			got[key] = string(raw)
			return nil
		})
		// Whatever encoding/json takes as an object of moderate depth, the
		// scanner takes too, and finds the same members.
		var want map[string]json.RawMessage
		if json.Unmarshal(b, &want) != nil || want == nil {
			return
		}
		if err != nil {
			if strings.Contains(err.Error(), "nested deeper") {
				return
			}
			t.Fatalf("%q: %v", b, err)
		}
		for key, raw := range want {
			if got[key] != string(raw) {
				t.Errorf("%q: member %q is %q, want %q", b, key, got[key], raw)
			}
		}
	})
}

func FuzzUnquote(f *testing.F) {
	for _, s := range []string{`""`, `"a\n"`, `"\ud83d\ude00"`, `"\ud800\u0041"`, `"\udc00"`, "\"\xff\"", `"\u00"`, `"\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Unquote(b)
		var want string
		if json.Unmarshal(b, &want) != nil || len(b) == 0 || b[0] != '"' || b[len(b)-1] != '"' {
			return
		}
		if err != nil || string(got) != want {
			t.Errorf("Unquote(%q) = %q, %v; want %q", b, got, err, want)
		}
		if back := AppendQuoted(nil, got); !json.Valid(back) {
			t.Errorf("AppendQuoted(%q) = %q", got, back)
		}
	})
}

func FuzzDecodeFileWrite(f *testing.F) {
	f.Add([]byte(`{"path":"/a","content":"AAEC","encoding":"base64"}`))
	f.Add([]byte(`{"path":"/a","content":"x\u00e9"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := DecodeFileWrite(bytes.Clone(b))
		if err != nil {
			return
		}
		out, err := json.Marshal(map[string]any{"path": w.Path, "encoding": "base64", "content": base64.StdEncoding.EncodeToString(w.Content)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeFileWrite(out)
		if err != nil || !bytes.Equal(again.Content, w.Content) {
			t.Errorf("%q: %v", b, err)
		}
	})
}

func BenchmarkDecodeEnvelope(b *testing.B) {
	frame := []byte(`{"type":"FILE_STAT","id":"6f1c2a9e-0000-4000-8000-000000000000","ts":1712345678.123,"payload":{"path":"/home/pi/farhand/data.csv","follow_symlinks":true}}`)
	for b.Loop() {
		if _, err := DecodeEnvelope(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzEncodeBase64(f *testing.F) {
	f.Add([]byte("any carnal pleas"))
	f.Add(bytes.Repeat([]byte{0xff, 0, 0x7f}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := make([]byte, base64.StdEncoding.EncodedLen(len(b)))
		EncodeBase64(got, b)
		if want := base64.StdEncoding.EncodeToString(b); string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestEncodeBase64EveryLength(t *testing.T) {
	data := make([]byte, 100)
	for i := range data {
		data[i] = byte(i * 37)
	}
	for n := range data {
		var b bytes.Buffer
		if err := writeBase64(&b, data[:n]); err != nil {
			t.Fatal(err)
		}
		if want := base64.StdEncoding.EncodeToString(data[:n]); b.String() != want {
			t.Fatalf("%d bytes: got %s, want %s", n, b.String(), want)
		}
	}
}

func BenchmarkBase64(b *testing.B) {
	src := make([]byte, base64Piece)
	dst := make([]byte, base64.StdEncoding.EncodedLen(len(src)))
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			EncodeBase64(dst, src)
		}
	})
	b.Run("library", func(b *testing.B) {
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			base64.StdEncoding.Encode(dst, src)
		}
	})
}

func TestFileStatWithoutReflection(t *testing.T) {
	full := FileStatResponse{
		Exists: true, IsFile: new(true), IsDir: new(false), IsSymlink: new(false), SizeBytes: new(int64(1 << 40)),
		MTime: new(1712345678.25), CTime: new(1712345678.0), Mode: new("0644"), OwnerUID: new(uint32(4294967295)), OwnerGID: new(uint32(0)),
		MIMEType: new("text/csv"), Path: new("/home/pi/caf\u00e9 \"x\"\n"),
	}
	for _, r := range []FileStatResponse{full, {}, {Path: new("/gone")}} {
		f, err := Message{Type: TFileStatResponse, ID: "a", Payload: r}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		e, err := DecodeEnvelope(f.Head)
		if err != nil {
			t.Fatalf("%s: %v", f.Head, err)
		}
		var got, want map[string]any
		if err := json.Unmarshal(e.Payload, &got); err != nil {
			t.Fatalf("%s: %v", e.Payload, err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzDecodeHardwareOp(f *testing.F) {
	f.Add([]byte(`{"device":"gpio:x","op":"GPIO_SET","args":{"line":17,"value":1},"hold":true}`))
	f.Add([]byte(`{"device":null,"op":null,"args":null,"hold":null}`))
	f.Add([]byte(`{"device":7,"args":{]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want HardwareOp
		err := Decode(b, &got)
		type plain HardwareOp // without decodeFields
		if json.Unmarshal(b, (*plain)(&want)) != nil || len(bytes.TrimSpace(b)) == 0 || bytes.TrimSpace(b)[0] != '{' {
			return
		}
		// encoding/json folds the case of keys; the protocol doesn't.
		exact := true
		_ = Fields(b, func(key string, _ []byte) error {
			for _, known := range []string{"device", "op", "args", "hold"} {
				exact = exact && (key == known || !strings.EqualFold(key, known))
			}
			return nil
		})
		if !exact || err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", b, diff)
		}
	})
}

func FuzzDecodeFileStat(f *testing.F) {
	f.Add([]byte(`{"path":"/a","follow_symlinks":false}`))
	f.Add([]byte(`{"path":null,"follow_symlinks":null,"x":[]}`))
	f.Add([]byte(`{"path":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want FileStat
		err := Decode(b, &got)
		type plain FileStat // without decodeFields
		if json.Unmarshal(b, (*plain)(&want)) != nil || len(bytes.TrimSpace(b)) == 0 || bytes.TrimSpace(b)[0] != '{' {
			return
		}
		// encoding/json folds the case of keys; the protocol doesn't.
		exact := true
		_ = Fields(b, func(key string, _ []byte) error {
			if (strings.EqualFold(key, "path") && key != "path") || (strings.EqualFold(key, "follow_symlinks") && key != "follow_symlinks") {
				exact = false
			}
			return nil
		})
		if !exact || err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", b, diff)
		}
	})
}

// A cause ends many contexts at once: what is added to it for one caller is that
// caller's alone.
func TestAsErrorIsTheCallersOwn(t *testing.T) {
	cause := Errorf(HardwareNotGranted, "revoked").With("reason", "grant_revoked")
	own := AsError(fmt.Errorf("GPIO_SET: %w", cause)).With("device", "gpio:x")
	if len(cause.Details) != 1 || len(own.Details) != 2 || own.Code != cause.Code || own.Details["reason"] != "grant_revoked" {
		t.Errorf("the cause has %v, the caller's %v", cause.Details, own.Details)
	}
}
