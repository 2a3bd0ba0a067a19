package events

import (
	"errors"
	"fmt"
	"testing"

	"farhand/wire"
)

func TestFeed(t *testing.T) {
	f := New()
	list, start, gap, wake, err := f.Since("ann", "")
	if err != nil || list != nil || gap != "" {
		t.Fatalf("%v %q %v", list, gap, err)
	}
	f.Publish("bob", Event{Type: MachineOnline})
	select {
	case <-wake:
		t.Error("woken by somebody else's")
	default:
	}
	f.Publish("ann", Event{Type: MachineOnline, Machine: "m"})
	<-wake
	list, next, gap, _, err := f.Since("ann", start)
	if err != nil || len(list) != 1 || gap != "" || list[0].Machine != "m" || list[0].Cursor != next || list[0].Time.IsZero() {
		t.Fatalf("%+v %q %q %v", list, next, gap, err)
	}
	for i := range Kept {
		f.Publish("ann", Event{Type: DeviceAdded, Subject: fmt.Sprint(i)})
	}
	list, _, gap, _, _ = f.Since("ann", next)
	if len(list) != Kept || gap != "" || list[0].Subject != "0" || list[Kept-1].Subject != fmt.Sprint(Kept-1) {
		t.Errorf("%d events, gap %q", len(list), gap)
	}
	list, _, gap, _, _ = f.Since("ann", start)
	if len(list) != Kept || gap != TooOld {
		t.Errorf("%d events, gap %q", len(list), gap)
	}
	if list, _, gap, _, _ = New().Since("ann", next); len(list) != 0 || gap != Restarted {
		t.Errorf("%d events, gap %q", len(list), gap)
	}
	for _, bad := range []string{"x", f.life, f.life + ".", f.life + ".-1", f.life + ".5000", f.life + ".1.1", "short.1", "." + next} {
		if _, _, _, _, err := f.Since("ann", bad); !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	f.Forget("ann")
	if list, _, _, _, _ := f.Since("ann", ""); list != nil {
		t.Error("kept after all")
	}
}
