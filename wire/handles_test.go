package wire_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"farhand/wire"
)

func TestUSBID(t *testing.T) {
	for text, want := range map[string]wire.USBID{
		`"2341"`: "2341", `"0X46D"`: "046d", `" c52b "`: "c52b", `9025`: "2341", `"0"`: "0000",
	} {
		var id wire.USBID
		if err := json.Unmarshal([]byte(text), &id); err != nil || id != want {
			t.Errorf("%s is %q, %v, want %q", text, id, err, want)
		}
	}
	for _, bad := range []string{`""`, `"12345"`, `"x"`, `65536`, `-1`, `1.5`, `{}`, `[]`, `true`, `"0x"`} {
		var id wire.USBID
		if err := json.Unmarshal([]byte(bad), &id); err == nil {
			t.Errorf("%s is taken as %q", bad, id)
		}
	}
}

// FuzzUSBID: whatever is read comes back as itself, in the one form.
func FuzzUSBID(f *testing.F) {
	for _, seed := range []string{`"2341"`, `"0x46d"`, `9025`, `""`, `"\u0030"`} {
		f.Add([]byte(seed))
	}
	form := regexp.MustCompile(`^[0-9a-f]{4}$`)
	f.Fuzz(func(t *testing.T, text []byte) {
		var id, again wire.USBID
		if json.Unmarshal(text, &id) != nil || string(text) == "null" {
			return
		}
		if !form.MatchString(string(id)) {
			t.Fatalf("%q is read as %q", text, id)
		}
		b, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &again); err != nil || again != id {
			t.Fatalf("%s is read as %q, %v", b, again, err)
		}
	})
}

// What stands for a handle is never sent where its class of devices wasn't
// granted.
func TestHandleAnswersNeedTheirFamily(t *testing.T) {
	for answer, need := range map[wire.Type]wire.Capability{
		wire.TSerialOpenResponse: wire.HardwareSerial, wire.TSerialReadResponse: wire.HardwareSerial,
		wire.TUSBOpenResponse: wire.HardwareUSB, wire.TUSBTransferResponse: wire.HardwareUSB,
		wire.TGPIOReadResponse: wire.HardwareGPIO,
	} {
		others := wire.Capabilities{wire.Files, wire.Shell, wire.LocalLLM, wire.Streams, wire.HardwareI2C}
		for _, c := range []wire.Capability{wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO} {
			if c != need {
				others = append(others, c)
			}
		}
		if wire.MayDeviceSend(answer, others) || !wire.MayDeviceSend(answer, wire.Capabilities{need}) {
			t.Errorf("%s doesn't go by %s", answer, need)
		}
		if !wire.IsAnswer(answer) {
			t.Errorf("%s is answered", answer)
		}
	}
}
