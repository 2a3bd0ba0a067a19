package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"farhand/wire"
)

// benchCluster measures what it adds that an operator's instance isn't the
// machine's.
func benchCluster(ctx context.Context, bin, dir string) ([]bar, error) {
	nats, err := startNATS(dir)
	if err != nil {
		return nil, err
	}
	defer nats.stop()
	home, err := startRelay(bin, filepath.Join(dir, "home"), "--nats", nats.url)
	if err != nil {
		return nil, err
	}
	defer home.stop()
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	// The token was made at the first: the store has it.
	p, err := start(os.Environ(), filepath.Join(bin, "farhand-relay"), "run", "--listen", addr,
		"--data-dir", filepath.Join(dir, "other"), "--nats", nats.url, "--public-url", home.url, "--max-requests", "0")
	if err != nil {
		return nil, err
	}
	other := &relay{program: p, url: "http://" + addr, token: home.token}
	defer func() { other.stop() }()
	if err := other.answers(ctx); err != nil {
		return nil, err
	}
	added, err := hopBetween(ctx, home, other)
	if err != nil {
		return nil, err
	}
	return []bar{{name: "cluster_hop_ms", value: added, limit: 1, unit: "ms"}}, nil
}

// hopBetween has the same device asked by way of its own instance and of another,
// in turn, and gives the difference of the medians in milliseconds.
func hopBetween(ctx context.Context, home, other *relay) (float64, error) {
	token, err := home.pair("hop")
	if err != nil {
		return 0, err
	}
	device, err := self("-role", "devices", "-url", home.url, "-tokens", "hop:"+token)
	if err != nil {
		return 0, err
	}
	defer device.stop()
	if _, err := device.line("connected"); err != nil {
		return 0, err
	}
	var session struct {
		ID string `json:"session_id"`
	}
	if err := home.post("/api/sessions", map[string]any{"machine": "hop"}, &session); err != nil {
		return 0, err
	}
	stat := request(wire.TFileStat, map[string]any{"path": "/bench/some/file", "follow_symlinks": true})
	var ways [2]call
	for i, r := range []*relay{home, other} {
		ws, _, err := dialer().DialContext(ctx, r.ws("/ws/operator"), http.Header{"Authorization": {"Bearer " + r.token}})
		if err != nil {
			return 0, err
		}
		s := &socket{Conn: ws}
		defer s.Close()
		ways[i] = func() error {
			frame := stat()
			frame = append(frame[:len(frame)-1], fmt.Sprintf(`,"session_id":%q}`, session.ID)...)
			return ask(s, frame, wire.TFileStatResponse, 0)
		}
	}
	const rounds = 25
	var times [2][]time.Duration
	for round := range rounds + 1 {
		for i, f := range ways {
			for range roundCalls {
				took, err := timed(1, f)
				if err != nil {
					return 0, err
				}
				if round > 0 { // the first warms up
					times[i] = append(times[i], took)
				}
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	here, there := median(times[0]), median(times[1])
	fmt.Printf("%-16s p50 at the machine's instance %s, at another %s\n", "cluster_hop_ms", here, there)
	return float64(there-here) / float64(time.Millisecond), nil
}

type natsServer struct {
	*program
	url string
}

// startNATS runs the nats-server that go.mod names as a tool.
func startNATS(dir string) (*natsServer, error) {
	path := os.Getenv("FARHAND_TEST_NATS_SERVER")
	if path == "" {
		path = filepath.Join(dir, "nats-server")
		build := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/nats-io/nats-server/v2")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building nats-server: %w\n%s", err, out)
		}
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: %s\njetstream { store_dir: %q, sync_interval: always }\nlogfile: /dev/stdout\n", addr, filepath.Join(dir, "js"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := start(os.Environ(), path, "-c", config)
	if err != nil {
		return nil, err
	}
	if _, err := p.line("Server is ready"); err != nil {
		p.stop()
		return nil, err
	}
	return &natsServer{p, "nats://" + strings.TrimSpace(addr)}, nil
}
