// Command boot is the image's boot test (make boot-test): it boots the finished
// image in emulated boards, with a real relay and the real command on this
// machine, and does with it what an owner does, and what happens to a board.
//
// Nothing is put into the image for it. Kernel, initramfs, device tree and
// command line are those that the firmware would take from the image's own boot
// partition; only the Pi 3B, whose emulation has no watchdog timer, gets
// systemd.watchdog_sec=0 on top.
//
// Lanes run side by side, each a board with a card of its own; the steps of a
// lane follow each other, and the first that fails ends its lane. It needs no
// root, but for installing the few programs of Debian's that are missing.
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

// options are the command line.
type options struct {
	target                          string
	image, bin, report, cache, only string
	quick, console, keep, stay      bool
	seed                            uint64
	cuts, points                    int
	lanes                           int
	limit                           time.Duration
	slack                           float64
}

// patient is how long something may take that takes d at most on two cores which
// have nothing else to do.
func (o options) patient(d time.Duration) time.Duration {
	return time.Duration(float64(d) * o.slack)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.target, "target", pi, "what the image is `for`: pi, generic or amd64")
	flag.StringVar(&o.image, "image", "", "the image `FILE`, .img or .img.xz (default: the newest in bin/image)")
	flag.StringVar(&o.bin, "bin", "bin", "the `folder` with farhand and farhand-relay")
	flag.StringVar(&o.report, "report", "bin/image/boot-test.json", "the `file` for the report; pictures go beside it")
	flag.StringVar(&o.cache, "cache", "", "the `folder` for a fetched QEMU (default: in the user's cache)")
	flag.StringVar(&o.only, "only", "", "only lanes whose name matches this `pattern`")
	flag.BoolVar(&o.quick, "quick", false, "only what every change must pass")
	flag.BoolVar(&o.console, "console", false, "show the boards' consoles")
	flag.BoolVar(&o.keep, "keep", false, "keep cards and consoles, and say where")
	flag.BoolVar(&o.stay, "stay", false, "leave boards on after their last step, until Ctrl-C, and say how to reach them")
	flag.Uint64Var(&o.seed, "seed", 0, "repeat the power cuts of a run (0: others)")
	flag.IntVar(&o.cuts, "cuts", 10, "how many power cuts to boot after")
	flag.IntVar(&o.points, "points", 50, "how many more cut points to check without booting")
	flag.IntVar(&o.lanes, "lanes", 2, "how many boards run at once")
	flag.DurationVar(&o.limit, "limit", 2*time.Hour, "how long all of it may take")
	flag.Float64Var(&o.slack, "slack", 4, "how many `times` as long each step may take as on two cores with nothing else to do")
	flag.Parse()
	ok, err := bootTest(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "boot-test:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}
