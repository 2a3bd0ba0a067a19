package wire

import (
	"encoding/json"
	"testing"
)

func TestCanonicalArgs(t *testing.T) {
	for _, c := range []struct{ op, args, want string }{
		{OpI2CTransfer, `{"address":118,"data":"0A==","size":1}`, `{"write":"0A==","read":1,"address":118}`},
		{OpI2CTransfer, `{"address":118,"write":"0A==","read":1}`, `{"address":118,"write":"0A==","read":1}`},
		{OpI2CTransfer, `{"address":118,"read":1,"size":2}`, `{"read":2,"address":118,"read":1}`},
		{OpI2CSMBus, `{"size":4,"data":[1]}`, `{"length":4,"data":[1]}`},
		{OpSPITransfer, `{"write":[159],"Length":3,"max_speed_hz":9}`, `{"read":3,"speed_hz":9,"write":[159]}`},
		{OpUSBControl, `{"size":18}`, `{"length":18}`},
		{OpUSBReceive, `{"length":18}`, `{"size":18}`},
		{OpSerialExpect, `{"data":"Cg==","patterns":["a"]}`, `{"send":"Cg==","expect":["a"]}`},
		{OpGPIOWatch, `{"line":1,"edges":"rising"}`, `{"edge":"rising","line":1}`},
		{OpPrinterJob, `{"command":"cancel"}`, `{"action":"cancel"}`},
		{OpPrinterCommand, `{"commands":["G28"]}`, `{"gcode":["G28"]}`},
		{OpPrinterCommand, `{"data":"AA=="}`, `{"data":"AA=="}`},
		{OpUSBSend, `{"size":1}`, `{"size":1}`},
		{OpI2CTransfer, `[1]`, `[1]`}, {OpI2CTransfer, `{"data":`, `{"data":`}, {OpI2CTransfer, ``, ``}, {OpI2CTransfer, `{}`, `{}`},
	} {
		if got := string(CanonicalArgs(c.op, json.RawMessage(c.args))); got != c.want {
			t.Errorf("%s %s is read as %s, want %s", c.op, c.args, got, c.want)
		}
	}
	// What a field's own name says counts, wherever it stands.
	for _, args := range []string{`{"read":1,"size":2}`, `{"size":2,"read":1}`} {
		var got I2CTransfer
		if err := json.Unmarshal(CanonicalArgs(OpI2CTransfer, json.RawMessage(args)), &got); err != nil || got.Read != 1 {
			t.Errorf("%s is %+v, %v", args, got, err)
		}
	}
}
