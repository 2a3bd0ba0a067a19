package wire

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestGPIOForms(t *testing.T) {
	one, zero := GPIOLevel(1), GPIOLevel(0)
	for args, want := range map[string]GPIOSet{
		`{"line":17,"value":1}`:                {GPIOSelect: GPIOSelect{Line: "17"}, Value: &one},
		`{"line":"pin 11","value":"off"}`:      {GPIOSelect: GPIOSelect{Line: "pin 11"}, Value: &zero},
		`{"line":null,"lines":null}`:           {},
		`{"lines":[17,"GPIO18"],"value":true}`: {GPIOSelect: GPIOSelect{Lines: GPIOLines{Names: []GPIOLine{"17", "GPIO18"}}}, Value: &one},
		`{"lines":{"18":1,"17":0}}`: {GPIOSelect: GPIOSelect{
			Lines: GPIOLines{Names: []GPIOLine{"18", "17"}, Levels: []GPIOLevel{1, 0}}}},
		`{"lines":5,"on_release":1}`:         {GPIOSelect: GPIOSelect{Lines: GPIOLines{Names: []GPIOLine{"5"}}}, GPIOEnd: GPIOEnd{OnRelease: GPIOHigh}},
		`{"lines":[17,18],"values":[1,0.0]}`: {GPIOSelect: GPIOSelect{Lines: GPIOLines{Names: []GPIOLine{"17", "18"}}}, Values: []GPIOLevel{1, 0}},
		`{"lines":[{"line":17,"name":"GPIO17","value":1},{"line":"GPIO18","value":0}]}`: {GPIOSelect: GPIOSelect{
			Lines: GPIOLines{Names: []GPIOLine{"17", "GPIO18"}, Levels: []GPIOLevel{1, 0}}}},
		`{"lines":[ {"line":17}]}`: {GPIOSelect: GPIOSelect{Lines: GPIOLines{Names: []GPIOLine{"17"}}}},
		`{"on_release":"LOW"}`:     {GPIOEnd: GPIOEnd{OnRelease: GPIOLow}},
		`{"on_release":null}`:      {},
		`{"on_release":"Input"}`:   {GPIOEnd: GPIOEnd{OnRelease: GPIOInput}},
	} {
		var got GPIOSet
		if err := json.Unmarshal([]byte(args), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v, want %+v", args, got, err, want)
		}
		// What was read is written so that it reads the same.
		raw, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again GPIOSet
		if err := json.Unmarshal(raw, &again); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s is written as %s, which is %+v, %v", args, raw, again, err)
		}
	}
	for _, args := range []string{
		`{"line":-1}`, `{"line":1.5}`, `{"line":true}`, `{"line":{}}`, `{"line":4294967296}`, `{"lines":{"17":2}}`, `{"lines":{"17":null}}`,
		`{"lines":[{"line":17,"value":1},{"line":18}]}`, `{"lines":[{"value":1}]}`, `{"lines":[{"line":17},{"line":18,"value":1}]}`, `{"lines":[{"line":17},18]}`, `{"lines":[{}]}`, `{"values":[2]}`,
		`{"lines":[true]}`, `{"lines":true}`, `{"value":2}`, `{"value":"yes"}`, `{"on_release":"off and on"}`, `{"on_release":2}`,
	} {
		var got GPIOSet
		if err := json.Unmarshal([]byte(args), &got); err == nil {
			t.Errorf("%s is %+v", args, got)
		}
	}
	if _, err := json.Marshal(GPIOLines{Names: []GPIOLine{"1"}, Levels: []GPIOLevel{}}); err == nil {
		t.Error("lines without their levels can be written")
	}
}
