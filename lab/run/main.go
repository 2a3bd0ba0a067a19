// Command run is the kernel lab (make lab): it boots a Linux kernel under plain
// emulation and runs in it the tests that want real devices.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// allTests is the pattern of every test that is for the lab.
const allTests = "^TestLab"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.root, "root", ".", "the module's `folder`")
	flag.StringVar(&o.suites, "run", "", "`suites` to run, as gpio,usb (default: all)")
	flag.StringVar(&o.tests, "test", allTests, "the `pattern` of tests to run")
	flag.StringVar(&o.report, "report", "bin/lab.json", "the `file` for the report")
	flag.DurationVar(&o.limit, "limit", 6*time.Minute, "how long guests may run in all; on two free cores they take less than half")
	flag.DurationVar(&o.suiteLimit, "suite-limit", 150*time.Second, "how long one suite may run, before it says what hangs")
	flag.IntVar(&o.soak, "soak", 100, "plug and unplug `cycles` of the soak test")
	flag.BoolVar(&o.refresh, "refresh", false, "ask for a newer kernel, though one is in the cache")
	flag.BoolVar(&o.verbose, "v", false, "list every test")
	flag.BoolVar(&o.console, "console", false, "show the guest's console")
	flag.Parse()
	ok, err := lab(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}
