package present

import (
	"os"
	"testing"
)

func TestArrivals(t *testing.T) {
	news, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer news.Close()
	states := []bool{false, false, true, true, false, false, true}
	if _, err := tell.Write(make([]byte, len(states)-1)); err != nil {
		t.Fatal(err)
	}
	tell.Close()
	looks, arrivals := 0, []int{}
	err = follow(t.Context(), news, func() bool {
		looks++
		return states[looks-1]
	}, func() { arrivals = append(arrivals, looks-1) })
	if err == nil || looks != len(states) {
		t.Errorf("looked %d times, ended with %v", looks, err)
	}
	if len(arrivals) != 2 || arrivals[0] != 2 || arrivals[1] != 6 {
		t.Errorf("arrived at the looks %v, want 2 and 6", arrivals)
	}
}
