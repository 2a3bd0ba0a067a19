package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"farhand/internal/newc"
	"farhand/internal/testenv"
	"farhand/lab/kernel"
	"farhand/lab/machine"
	"farhand/lab/proto"
	"farhand/lab/report"
	"farhand/lab/suite"
)

type options struct {
	root, suites, tests, report string
	limit, suiteLimit           time.Duration
	soak                        int
	refresh, verbose, console   bool
}

// lab runs everything and says whether all was well.
func lab(ctx context.Context, o options, out io.Writer) (bool, error) {
	start := time.Now()
	// A report of an earlier run must not be taken for this one's.
	path := filepath.Join(o.root, o.report)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	all, err := suite.Find(o.root)
	if err != nil {
		return false, err
	}
	chosen, err := suite.Select(all, o.suites)
	if err != nil {
		return false, err
	}
	k, err := getKernel(ctx, o.refresh, out)
	if err != nil {
		return false, err
	}
	// The long ones that mostly wait have a guest beside that of the others.
	var parts [2][]suite.Suite
	for _, s := range chosen {
		i := 0
		if slices.Contains(suite.Apart, s.Name) {
			i = 1
		}
		parts[i] = append(parts[i], s)
	}
	var reports [2]*report.Report
	var errs [2]error
	var running sync.WaitGroup
	for i, suites := range parts {
		if len(suites) > 0 {
			running.Go(func() { reports[i], errs[i] = part(ctx, o, k, suites, out) })
		}
	}
	running.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return false, err
	}
	r := report.Join(reports[:]...)
	if err := again(ctx, o, k, chosen, r, out); err != nil {
		return false, err
	}
	r.Whole = o.suites == "" && o.tests == allTests
	r.Seconds = time.Since(start).Seconds()
	r.Print(out, o.verbose)
	return r.Result == report.Pass, r.Write(path)
}

// again gives the suites that failed a second machine. An emulated one can stand
// still as a whole, and then takes with it what was not to blame; what the first
// attempt has said stays in the report.
func again(ctx context.Context, o options, k kernel.Kernel, chosen []suite.Suite, r *report.Report, out io.Writer) error {
	var names []string
	for _, s := range chosen {
		names = append(names, s.Name)
	}
	names = r.Failed(names)
	if len(names) == 0 || ctx.Err() != nil {
		return nil
	}
	fmt.Fprintf(out, "lab: once more, in another machine: %s\n", strings.Join(names, " "))
	second, err := part(ctx, o, k, slices.DeleteFunc(slices.Clone(chosen), func(s suite.Suite) bool { return !slices.Contains(names, s.Name) }), out)
	if err != nil {
		return err
	}
	r.Again(second)
	return nil
}

// part runs some suites.
func part(ctx context.Context, o options, k kernel.Kernel, suites []suite.Suite, out io.Writer) (*report.Report, error) {
	work, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	var names []string
	for _, s := range suites {
		names = append(names, s.Name)
	}
	r := report.New(names)
	image, built, err := build(ctx, o, k, suites, work, r)
	if err != nil {
		return nil, err
	}
	problem := guests(ctx, o, machine.Options{Kernel: k.Image, Initramfs: image, Dir: work, Limit: o.limit}, built, r, out)
	return r, r.Finish(problem)
}

func getKernel(ctx context.Context, refresh bool, log io.Writer) (kernel.Kernel, error) {
	cache, err := kernel.DefaultCache()
	if err != nil {
		return kernel.Kernel{}, err
	}
	if !refresh {
		k, err := kernel.Cached(cache)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return k, err
		}
	}
	return kernel.Fetch(ctx, cache, log)
}

// guests runs suites, in one guest as long as they pass: after one that
// failed, or that ended the guest, the next ones get another. The error is what
// went wrong outside of suites.
func guests(ctx context.Context, o options, mo machine.Options, suites int, r *report.Report, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, machine.ErrLimit)
	defer cancel()
	if o.console {
		mo.Console = out
	}
	for mo.Skip < suites {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g := guest{report: r, out: out}
		err := g.boot(ctx, mo)
		switch {
		case err != nil && g.running != "": // it took the guest with it
			r.FailSuite(g.running, err.Error())
			g.ended++
		case err != nil:
			return err
		case g.ended == 0:
			return errors.New("the guest ran none of the suites that it has")
		}
		mo.Skip += g.ended
	}
	return nil
}

// standstill is how long a guest may say nothing: the longest test of a suite is
// silent for a fifth of it on two cores that have other work, too.
const standstill = 2 * time.Minute

var errStill = fmt.Errorf("the guest said nothing for %s and was killed", standstill)

// guest is one boot, as its frames tell it.
type guest struct {
	report  *report.Report
	out     io.Writer
	running string // suite that has begun and not ended
	ended   int    // suites
}

func (g *guest) saw(f proto.Frame) {
	switch f.Kind {
	case proto.Boot:
		fmt.Fprintf(g.out, "lab: Linux %s is up\n", f.Text)
	case proto.Start:
		g.running = f.Suite
	case proto.End:
		g.running = ""
		g.ended++
		fmt.Fprintf(g.out, "lab: %s ended after %.1f s\n", f.Suite, f.Seconds)
	}
}

// boot runs the guest until it is off. The error says what happened to it, if
// that was not its own will.
func (g *guest) boot(ctx context.Context, o machine.Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m, err := machine.Start(ctx, o)
	if err != nil {
		return err
	}
	still := time.AfterFunc(standstill, func() { cancel(errStill) })
	defer still.Stop()
	err = g.report.Read(m.Results(), func(f proto.Frame) {
		still.Reset(standstill)
		g.saw(f)
	})
	ended := m.Wait()
	if err == nil {
		return ended
	}
	// Why the machine ended says more than that its port did.
	if ended != nil {
		err = ended
	}
	if tail := m.ConsoleTail(); tail != "" {
		err = fmt.Errorf("%w; its console ended with\n%s", err, tail)
	}
	return err
}

// build makes the initramfs: init, modules and suites, and says how many. A
// suite that can't be built fails in r; the others run.
func build(ctx context.Context, o options, k kernel.Kernel, suites []suite.Suite, work string, r *report.Report) (string, int, error) {
	initPath := filepath.Join(work, "init")
	if err := suite.BuildProgram(ctx, filepath.Join(o.root, "lab", "init"), initPath); err != nil {
		return "", 0, err
	}
	orders := proto.Orders{Env: environment(o), Seconds: int(o.suiteLimit.Seconds())}
	binaries := make(map[string]string)
	for i, s := range suites {
		binary := filepath.Join(work, "suite"+strconv.Itoa(i))
		if err := s.Build(ctx, binary); err != nil {
			r.FailSuite(s.Name, err.Error())
			continue
		}
		at := "/lab/suites/" + strings.ReplaceAll(s.Name, "/", "_") + ".test"
		binaries[at] = binary
		orders.Suites = append(orders.Suites, proto.Suite{Name: s.Name, Binary: at, Dir: guestDir(s), Run: o.tests})
	}
	modulesDir := filepath.Join(work, "modules")
	if err := os.Mkdir(modulesDir, 0o755); err != nil {
		return "", 0, err
	}
	modules, err := k.Load(ctx, modulesDir, append(names(loadedModules), laterModules...)...)
	if err != nil {
		return "", 0, err
	}
	orders.Modules = toLoad(modules)
	image := filepath.Join(work, "initramfs")
	return image, len(orders.Suites), archive(image, func(w *newc.Writer) error {
		if err := w.File("init", 0o755, initPath); err != nil {
			return err
		}
		for at, binary := range binaries {
			if err := w.File(at, 0o755, binary); err != nil {
				return err
			}
		}
		for _, m := range modules {
			if err := w.File(filepath.Join(proto.ModulesDir, m.Name+".ko"), 0o644, m.Path); err != nil {
				return err
			}
		}
		for _, s := range suites {
			if err := testdata(w, s); err != nil {
				return err
			}
		}
		return skeleton(w, orders)
	})
}

// environment is that of the suites. Nothing of the host's gets in but what
// says how much to do.
func environment(o options) []string {
	return []string{
		"PATH=/bin", "HOME=/root", "TMPDIR=/tmp", "USER=root",
		testenv.LabVar + "=1",
		testenv.MustVar + "=all", // what the guest can't do is a failure, not a skip
		"FARHAND_SOAK=" + strconv.Itoa(o.soak),
	}
}

func guestDir(s suite.Suite) string { return "/src/" + s.Name }

// testdata copies a package's folder testdata, where its tests find it.
func testdata(w *newc.Writer, s suite.Suite) error {
	if err := w.Dir(guestDir(s)); err != nil {
		return err
	}
	from := filepath.Join(s.Dir, "testdata")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(s.Dir, path)
		if err != nil {
			return err
		}
		return w.File(filepath.Join(guestDir(s), rel), 0o644, path)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// skeleton is what a root file system needs beside programs.
func skeleton(w *newc.Writer, orders proto.Orders) error {
	data, err := json.Marshal(orders)
	if err != nil {
		return err
	}
	// The kernel gives /dev/console (5:1, its admin-guide/devices.txt) to process 1.
	if err := w.Char("dev/console", 0o600, 5, 1); err != nil {
		return err
	}
	for name, text := range map[string]string{
		proto.OrdersPath: string(data),
		"/etc/hosts":     "127.0.0.1 localhost\n",
		"/etc/passwd":    "root:x:0:0:root:/root:/bin/sh\n",
		"/etc/group":     "root:x:0:\n",
	} {
		if err := w.Bytes(name, 0o644, []byte(text)); err != nil {
			return err
		}
	}
	return w.Dir("/root")
}

func archive(path string, fill func(*newc.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := bufio.NewWriterSize(f, 1<<20)
	w := newc.NewWriter(buf)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.End(); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	return f.Close()
}
