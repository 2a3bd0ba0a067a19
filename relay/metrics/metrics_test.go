package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"farhand/relay/store"
	"farhand/wire"
)

// scrape is what Prometheus would see, checked as its own linter does.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v", w.Code, err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	return text
}

func TestCounted(t *testing.T) {
	m := New()
	m.Live(func() (int, int, int) { return 3, 2, 1 })
	m.Is("relay1", "farhand", "1.2.3")
	m.Sees(func() int { return 3 })
	m.Received(Instance, 30)
	m.Request(wire.TFileStat, "", time.Millisecond)
	m.Request(wire.TFileStat, wire.PathNotFound, time.Second)
	m.Request("NONSENSE\n", "no code at all", time.Second)
	m.AuthFailed(Operator)
	m.Audited("LOGIN", true)
	m.Lost()
	m.Received(Device, 10)
	m.Sent(Operator, 20)
	for i := range 2 * maxCodes {
		m.Request(wire.TFileStat, wire.Code(fmt.Sprintf("CODE_%d", i)), 0)
	}
	db, err := store.OpenBolt(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	s := m.Timed(db)
	defer s.Close()
	if _, err := s.Get(context.Background(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	text := scrape(t, m)
	for _, want := range []string{
		`farhand_relay_requests_total{code="",type="FILE_STAT"} 1`, `farhand_relay_requests_total{code="PATH_NOT_FOUND",type="FILE_STAT"} 1`,
		`farhand_relay_requests_total{code="other",type="other"} 1`, `farhand_relay_machines_online 3`, `farhand_relay_sessions_live 2`,
		`farhand_relay_operator_sockets 1`, `farhand_relay_auth_failures_total{peer="operator"} 1`, `farhand_relay_audit_events_total{op="LOGIN",refused="true"} 1`,
		`farhand_relay_info{cluster="farhand",name="relay1",version="1.2.3"} 1`, `farhand_relay_instances 3`, `farhand_relay_received_bytes_total{peer="instance"} 30`,
		`farhand_relay_stream_frames_lost_total 1`, `farhand_relay_received_bytes_total{peer="device"} 10`, `farhand_relay_sent_bytes_total{peer="operator"} 20`,
		`farhand_relay_store_duration_seconds_count{operation="get"} 1`, `process_resident_memory_bytes`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(text, `farhand_relay_requests_total{`); n > maxCodes+3 {
		t.Errorf("%d series of requests", n)
	}
}

func TestNothingIsCountedOnNil(t *testing.T) {
	var m *Metrics
	m.Live(nil)
	m.Is("", "", "")
	m.Sees(nil)
	m.Request(wire.TFileStat, "", 0)
	m.AuthFailed(Device)
	m.Audited("", false)
	m.Lost()
	m.Received(Device, 1)
	m.Sent(Device, 1)
	if s := m.Timed(nil); s != nil {
		t.Error("a store out of none")
	}
}
