package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestI2CAddress(t *testing.T) {
	for text, want := range map[string]I2CAddress{
		`"0x76"`: 0x76, `118`: 118, `"8"`: 8, `"76h"`: 0x76, `"0X3c"`: 0x3c, `" 0x50 "`: 0x50, `0`: 0, `"0x3ff"`: 0x3ff,
	} {
		var got struct{ Address I2CAddress }
		if err := json.Unmarshal([]byte(`{"address":`+text+`}`), &got); err != nil || got.Address != want {
			t.Errorf("%s is read as %v, %v", text, got.Address, err)
		}
	}
	for _, text := range []string{`"0x400"`, `1024`, `"118"`, `"50"`, `"7f"`, `-1`, `1.5`, `""`, `"0x"`, `"h"`, `"x"`, `[]`, `{}`, `true`, `1e2`, `"0x-1"`, `99999999999999999999`} {
		var a I2CAddress
		if err := json.Unmarshal([]byte(text), &a); err == nil {
			t.Errorf("%s is read as %v", text, a)
		}
	}
	if text, err := json.Marshal(I2CFound{Address: 0x08, Status: I2CPresent}); string(text) != `{"address":"0x08","status":"present"}` || err != nil {
		t.Errorf("written as %s, %v", text, err)
	}
}

func TestBusData(t *testing.T) {
	for text, want := range map[string]string{
		`"AQL/"`: "\x01\x02\xff", `[1, 2, 255]`: "\x01\x02\xff", `""`: "", `[]`: "", `null`: "",
	} {
		var d BusData
		if err := json.Unmarshal([]byte(text), &d); err != nil || string(d) != want {
			t.Errorf("%s is read as %q, %v", text, d, err)
		}
	}
	for _, text := range []string{`"0x9"`, `[256]`, `[-1]`, `[1.5]`, `["a"]`, `9`, `{}`, `[[1]]`, `"AQL"`} {
		var d BusData
		err := json.Unmarshal([]byte(text), &d)
		if !errors.Is(err, InvalidArgument) || strings.Contains(err.Error(), text) {
			t.Errorf("%s is read as %q, %v", text, d, err)
		}
	}
}

func FuzzBusArguments(f *testing.F) {
	for _, s := range []string{
		`{"address":"0x76","write":[208],"read":1}`, `{"address":80,"segments":[{"write":"AA=="},{"read":16}]}`,
		`{"address":"50h","protocol":"read_byte_data","command":1,"value":2,"data":[3]}`, `{"first":3,"last":"0x77","method":"read"}`,
		`{"write":"nw==","read":3,"cs":"none","mode":3}`, `{"segments":[{"write":[1],"cs_change":true,"delay_us":5,"bits":9}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{&I2CTransfer{}, &I2CSMBus{}, &I2CScan{}, &SPITransfer{}} {
			if json.Unmarshal(data, v) != nil {
				continue
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, v); err != nil {
				t.Fatalf("what was written can't be read: %v", err)
			}
			if again, err := json.Marshal(v); err != nil || !bytes.Equal(text, again) {
				t.Errorf("%s becomes %s, %v", text, again, err)
			}
		}
	})
}
