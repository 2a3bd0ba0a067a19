package daemon

import (
	"strings"
	"testing"
	"time"
)

func TestShowCode(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b strings.Builder
	err := showCode(&b, PairingStatus{
		UserCode: "BCDF-GHJK", VerificationURI: "https://relay.example/device",
		VerificationURIComplete: "https://relay.example/device?user_code=BCDF-GHJK", ExpiresAt: now.Add(time.Hour),
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n      BCDF-GHJK\n", "https://relay.example/device\n", "farhand approve BCDF-GHJK", "good for 60 minutes.", "█"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the screen lacks %q:\n%s", want, b.String())
		}
	}
}
