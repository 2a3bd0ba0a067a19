package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"farhand/image"
	"farhand/image/check"
	"farhand/image/spec"
	"farhand/image/target"
	"farhand/internal/version"
)

const usage = `farhand-image builds the image that is flashed onto a card.

  farhand-image build [flags]   build it, as root on Debian; missing tools are installed

Flags of build:
`

// Exit codes: those of the other programs.
const (
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{log: stderr}
	flags := flag.NewFlagSet("farhand-image build", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.target, "target", target.Names()[0], "what the image is `for`: "+strings.Join(target.Names(), ", "))
	flags.StringVar(&o.spec, "spec", "", "a TOML `file` with packages, files, relay and sizes beyond the defaults")
	flags.StringVar(&o.out, "out", "bin/image", "the `folder` for the image and what belongs to it")
	flags.StringVar(&o.cache, "cache", os.Getenv("FARHAND_IMAGE_CACHE"), "the `folder` for packages between builds (default OUT/cache)")
	flags.StringVar(&o.programs, "programs", "", "the `folder` with farhandd and farhand-init for the target (default bin/linux-ARCHITECTURE)")
	flags.StringVar(&o.from, "from", "", "the `URL` of the folder where people will get the image, for Raspberry Pi Imager's manifest (default: where it is built)")
	flags.StringVar(&o.version, "version", version.String(), "the image's version")
	flags.Int64Var(&o.epoch, "epoch", defaultEpoch(), "the time of every file, `seconds` since 1970 (default $SOURCE_DATE_EPOCH)")
	flags.IntVar(&o.workers, "workers", runtime.NumCPU(), "how many compressors run at once, up to 350 MB of memory each")
	flags.BoolVar(&o.keep, "keep", false, "keep what the image was made of")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	switch {
	case len(args) == 1 && args[0] == "version", len(args) == 1 && args[0] == "--version":
		fmt.Fprintln(stdout, version.String())
		return 0
	case len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help"):
		flags.SetOutput(stdout)
		flags.Usage()
		return 0
	case len(args) == 0 || args[0] != "build":
		flags.Usage()
		return exitUsage
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "farhand-image build takes no arguments, and got %q\n", flags.Arg(0))
		return exitUsage
	}
	if err := build(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "farhand-image: %v\n", err)
		return exitFailed
	}
	return 0
}

// defaultEpoch is what reproducible-builds.org's SOURCE_DATE_EPOCH says.
func defaultEpoch() int64 {
	n, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

type options struct {
	target, spec, out, cache, programs, from, version string
	epoch                                             int64
	workers                                           int
	keep                                              bool
	log                                               io.Writer
}

func build(ctx context.Context, o options, stdout io.Writer) error {
	start := time.Now()
	if o.epoch <= 0 {
		return errors.New("the build needs a time for its files that is the same each time: give --epoch or set SOURCE_DATE_EPOCH")
	}
	t, err := target.Find(o.target)
	if err != nil {
		return err
	}
	s, err := spec.Read(o.spec)
	if err != nil {
		return err
	}
	if err := image.Prepare(ctx, o.log); err != nil {
		return err
	}
	if o.cache == "" {
		o.cache = filepath.Join(o.out, "cache")
	}
	if o.programs == "" {
		o.programs = filepath.Join("bin", "linux-"+t.Root.Architecture)
	}
	work := filepath.Join(o.out, "work")
	if !o.keep {
		defer os.RemoveAll(work)
	}
	options := image.Options{
		Target: t, Spec: s, Version: o.version, Epoch: time.Unix(o.epoch, 0).UTC(), Work: work, Cache: o.cache, Log: o.log,
		Daemon: filepath.Join(o.programs, "farhandd"), Init: filepath.Join(o.programs, "farhand-init"),
		Out: filepath.Join(o.out, "farhand-"+o.version+"-"+t.Suffix+".img"), From: o.from,
	}
	b, err := image.Build(ctx, options)
	if err != nil {
		return err
	}
	// What is wrong with it isn't packed.
	if err := check.File(ctx, b.Path, t.Check); err != nil {
		return fmt.Errorf("the image isn't fit for use:\n%w", err)
	}
	pack := time.Now()
	c, err := image.Compress(ctx, b, o.workers)
	if err != nil {
		return err
	}
	if err := image.Companions(ctx, options, b, c); err != nil {
		return err
	}
	fmt.Fprintf(o.log, "image: compressed, %.1f s\n", time.Since(pack).Seconds())
	fmt.Fprintf(stdout, "%s: %.1f MB, %.0f MB on the card, Linux %s, built in %.0f s\n", c.Path, float64(c.Packed)/1e6, float64(c.Size)/1e6, b.Kernel, time.Since(start).Seconds())
	return nil
}
