package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"farhand/wire"
)

// scraped is what Prometheus would get, checked by its own linter.
func scraped(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v", resp.StatusCode, err)
	}
	problems, err := promlint.New(strings.NewReader(string(b))).Lint()
	if err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "farhand") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	return string(b)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	numbers := l.Addr().String()
	l.Close()
	b := bareBench(t)
	b.relayFlags = []string{"--metrics-listen", numbers}
	b.startRelay()
	b.signIn("--setup", b.relay.await(0, `setup token: (\S+)`)[1])
	b.claim("files")
	b.owner.must("ls")
	b.owner.fails(1, wire.PathNotFound, "ls", ":nothing")
	b.with("fh_op_nonsense").run("machines")

	secret := []string{b.owner.secret(), b.machineID(), b.roots[0], "nothing"}
	relay := scraped(t, http.DefaultClient, "http://"+numbers+"/metrics")
	for _, want := range []string{
		"farhand_relay_machines_online 1", `farhand_relay_requests_total{code="",type="FILE_LIST"} 1`, `farhand_relay_requests_total{code="PATH_NOT_FOUND",type="FILE_LIST"} 1`,
		`farhand_relay_request_duration_seconds_count{type="FILE_LIST"} 2`, "farhand_relay_sessions_live 1", `farhand_relay_audit_events_total{op="CLAIM_CREATED",refused="false"} 1`,
		`farhand_relay_received_bytes_total{peer="device"}`, `farhand_relay_store_duration_seconds_count{operation="get"}`,
	} {
		if !strings.Contains(relay, want) {
			t.Errorf("the relay has no %s", want)
		}
	}
	if resp, err := http.Get(b.url + "/metrics"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("where everybody can ask: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	local := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(b.stateDir(), "farhandd.sock"))
	}}}
	daemon := scraped(t, local, "http://farhandd/metrics")
	for _, want := range []string{
		"farhandd_online 1", "farhandd_connections_total 1", "farhandd_sessions_live 1", `farhandd_requests_total{type="FILE_LIST",code=""} 1`,
		`farhandd_requests_total{type="FILE_LIST",code="PATH_NOT_FOUND"} 1`, `farhandd_request_duration_seconds_count{type="FILE_LIST"} 2`, "farhandd_streams 0", "farhandd_leases 0",
		"farhandd_audit_records_total ", "farhandd_resident_memory_bytes ", "farhandd_requests_waiting 0",
	} {
		if !strings.Contains(daemon, want) {
			t.Errorf("the daemon has no %s", want)
		}
	}
	for _, never := range secret {
		if strings.Contains(relay, never) || strings.Contains(daemon, never) {
			t.Errorf("the numbers tell of %s", never)
		}
	}
}
