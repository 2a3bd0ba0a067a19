// Command bench is `make bench`: it measures the bars of the project, each as a
// ratio to a bare limit that is measured in the same run, alternating in rounds,
// with client, peer and daemon as separate processes and the audit log on.
//
// Its last lines are `bar <name> <value> <limit> ok|short`, one a bar. It exits
// 0 either way: a machine that is busy is no failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A round is this many calls; the median of the round ratios counts.
const roundCalls = 200

func main() {
	role := flag.String("role", "", "what a process started by the bench itself does: peer, forwarder, devices, model, sender, receiver, measured")
	url := flag.String("url", "", "where such a process connects to")
	tokens := flag.String("tokens", "", "a file of machine ids and tokens, for the role devices")
	file := flag.String("file", "", "what a process with the role sender or receiver reads or writes")
	bin := flag.String("bin", "bin", "where the built programs are")
	only := flag.String("only", "", "only the part with this name: daemon, terminal, gpio, serial, llm, transfer, relay or cluster")
	idle := flag.Int("idle", 2000, "how many idle devices the relay gets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	switch *role {
	case "peer":
		err = peer(ctx, *url)
	case "forwarder":
		err = forwarder(ctx, *url)
	case "measured":
		err = measured(flag.Args())
	case "model":
		err = model(ctx)
	case "devices":
		err = devices(ctx, *url, *tokens)
	case "sender":
		err = sendFile(ctx, *url, *file)
	case "receiver":
		err = receiveFile(ctx, *url, *file)
	default:
		err = bench(ctx, *bin, *only, *idle)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bar is one figure and its limit.
type bar struct {
	name  string
	value float64
	limit float64
	floor bool   // the limit is a floor, not a ceiling
	unit  string // empty: a ratio
}

// String has the numbers bare, for programs; what they count stands above.
func (b bar) String() string {
	verdict := "ok"
	if b.floor && b.value < b.limit || !b.floor && b.value > b.limit {
		verdict = "short"
	}
	return fmt.Sprintf("bar %s %.2f %g %s", b.name, b.value, b.limit, verdict)
}

func bench(ctx context.Context, bin, only string, idle int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "farhand-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var bars []bar
	for _, part := range []struct {
		name string
		run  func(context.Context, string, string) ([]bar, error)
	}{
		{"daemon", benchDaemon},
		{"terminal", benchTerminal},
		{"gpio", benchGPIO},
		{"serial", benchSerial},
		{"llm", benchLLM},
		{"transfer", benchTransfer},
		{"relay", func(ctx context.Context, bin, dir string) ([]bar, error) { return benchRelay(ctx, bin, dir, idle) }},
		{"cluster", benchCluster},
	} {
		if only != "" && only != part.name {
			continue
		}
		sub := filepath.Join(dir, part.name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		got, err := part.run(ctx, bin, sub)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		bars = append(bars, got...)
	}
	fmt.Println("\nEach bar with its value and its limit, ratios but for these:")
	for _, b := range bars {
		if b.unit != "" {
			fmt.Printf("%s in %s\n", b.name, b.unit)
		}
	}
	for _, b := range bars {
		fmt.Println(b)
	}
	return nil
}

// call is one round trip.
type call func() error

// compare runs rounds of two kinds of calls in turn and returns the median of
// the round ratios a/b, and the median time of one call of each.
func compare(ctx context.Context, name string, rounds, calls int, a, b call) (ratio float64, ta, tb time.Duration, err error) {
	var ratios []float64
	var as, bs []time.Duration
	for range rounds {
		if ctx.Err() != nil {
			return 0, 0, 0, context.Cause(ctx)
		}
		x, err := timed(calls, a)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s, ours: %w", name, err)
		}
		y, err := timed(calls, b)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s, bare: %w", name, err)
		}
		ratios = append(ratios, float64(x)/float64(y))
		as, bs = append(as, x/time.Duration(calls)), append(bs, y/time.Duration(calls))
	}
	ratio, ta, tb = median(ratios), median(as), median(bs)
	fmt.Printf("%-16s ours %10s  bare %10s  ratio %.2f\n", name, ta, tb, ratio)
	return ratio, ta, tb, nil
}

func timed(n int, f call) (time.Duration, error) {
	start := time.Now()
	for range n {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func median[T float64 | time.Duration](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// errTimeout ends what waits for a program that doesn't come.
var errTimeout = errors.New("not in time")
