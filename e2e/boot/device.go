package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"farhand/e2e/boot/card"
	"farhand/e2e/boot/firmware"
	"farhand/e2e/boot/guest"
	"farhand/e2e/boot/writelog"
	"farhand/image/layout"
	"farhand/provision/preseed"
)

// cardSize is that of a small card, in bytes. The emulated Pi 3B wants a power of
// two, and is slow to write.
func (d *device) cardSize() int64 { return [...]int64{4 << 30, 2 << 30, 4 << 30, 4 << 30}[d.kind] }

// device is a board, its card, and what the relay calls it.
type device struct {
	*lane
	life   context.Context // of the machine: it outlives a step
	dir    string
	board  *guest.Board
	card   *card.Card
	m      *guest.Machine
	on     time.Time                    // when the power came
	booted time.Duration                // how long the first boot took until online
	host   string                       // the owner's name for it
	put    map[string][sha256.Size]byte // what farhand put said of is there, by name
}

func newDevice(ctx context.Context, l *lane) (*device, error) {
	dir, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		return nil, err
	}
	d := &device{lane: l, life: ctx, dir: dir, host: "bench-" + l.name}
	d.board = &guest.Board{Kind: l.kind, Program: l.emulator, Firmware: l.firmware, Serial: guest.NewSerial(), Dir: dir, Extra: guest.Network(l.kind), Paced: !l.alone}
	if l.console {
		d.board.Console = l.out.writer(l.name)
	}
	return d, nil
}

// close takes the power away, if it is still there.
func (d *device) close() {
	if d.m != nil {
		d.m.Cut()
		if err := d.m.Eject(nothing); err != nil {
			d.out.say(d.name, "%v", err)
		}
	}
	if !d.keep {
		os.RemoveAll(d.dir)
	}
}

func nothing(*writelog.Log) []writelog.Write { return nil }

// stays leaves the board on for whoever wants to look at it.
func (d *device) stays(ctx context.Context) {
	if !d.stay || d.m == nil {
		return
	}
	d.out.say(d.name, "it stays on until Ctrl-C. In another terminal:\n    export FARHAND_CONFIG_DIR=%s\n    %s exec %s -- uname -a",
		filepath.Join(d.bench.dir, "operator"), filepath.Join(d.bench.bin, "farhand"), d.host)
	<-ctx.Done()
}

// failed leaves what the console said, and the journal that is on the card,
// beside the report.
func (d *device) failed() {
	d.m.Cut() // so that what is read is still
	beside := filepath.Join(filepath.Dir(d.options.report), "boot-test-"+d.name)
	if err := os.WriteFile(beside+".console", []byte(d.m.Console.String()), 0o644); err == nil {
		d.out.say(d.name, "the whole console is in %s.console", beside)
	}
	// The lane's own time may be what is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.life), time.Minute)
	defer cancel()
	if err := d.journal(ctx, beside+".journal"); err != nil {
		d.out.say(d.name, "the journal: %v", err)
		return
	}
	d.out.say(d.name, "the journal: journalctl -D %s.journal/journal", beside)
}

// journal copies the journal from the card.
func (d *device) journal(ctx context.Context, to string) error {
	dir, err := os.MkdirTemp(d.dir, "journal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	if err := d.m.Card.Extract(ctx, layout.Data, card.Everything, data); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	if _, err := tool(ctx, 1, "e2fsck", "-fp", data); err != nil {
		return err
	}
	_, err = tool(ctx, 0, "debugfs", "-R", "rdump /log/journal "+to, data)
	return err
}

// flash makes a card of the image by farhand flash, as an owner would, but that
// the board sees the relay at another address than we do. It returns the
// passphrase of the card's rescue network. Commands may become root, for making
// devices and for breaking things.
func (d *device) flash(ctx context.Context, flags ...string) (string, error) {
	file := filepath.Join(d.dir, "card")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	args := []string{"flash", d.raw, file, "--json", "--yes", "--name", d.host, "--hostname", d.host, "--shell", "--sudo"}
	if blocks := strings.TrimSuffix(d.image, ".xz") + ".bmap"; exists(blocks) {
		args = append(args, "--bmap", blocks)
	}
	out, err := d.bench.farhand(ctx, append(args, flags...)...)
	if err != nil {
		return "", err
	}
	var made struct {
		Rescue string `json:"rescue_passphrase"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return "", fmt.Errorf("farhand flash: %w", err)
	}
	if d.card, err = card.Open(file, d.cardSize()); err != nil {
		return "", err
	}
	d.put = make(map[string][sha256.Size]byte)
	return made.Rescue, d.readdress(ctx)
}

// readdress puts the relay's address, as boards see it, onto the card.
func (d *device) readdress(ctx context.Context) error {
	var text []byte
	err := d.onCard(ctx, d.card, func(files fs.FS) (err error) {
		text, err = fs.ReadFile(files, preseed.FarhandFile)
		return err
	})
	if err != nil {
		return err
	}
	here, there := []byte(d.bench.relayHere()), []byte(d.bench.relayFor())
	if !bytes.Contains(text, here) || !bytes.Contains(text, []byte(d.bench.ca)) {
		return fmt.Errorf("%s names no relay of ours: %q", preseed.FarhandFile, text)
	}
	return d.card.Put(ctx, layout.Autoboot, preseed.FarhandFile, bytes.ReplaceAll(text, here, there))
}

// fats is a card, in a board or out of it.
type fats interface {
	Files(ctx context.Context, number int, dir string) (fs.FS, error)
}

// onCard looks at what a card's first partition holds.
func (d *device) onCard(ctx context.Context, c fats, look func(fs.FS) error) error {
	dir, err := os.MkdirTemp(d.dir, "fat-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := c.Files(ctx, layout.Autoboot, dir)
	if err != nil {
		return err
	}
	return look(files)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// power turns the board on.
func (d *device) power(start firmware.Start) (err error) {
	d.on = time.Now()
	d.m, err = d.board.Power(d.life, d.card, start)
	return err
}

// cut takes the power away, and loses of what was not flushed what chance wants.
func (d *device) cut() error {
	d.m.Cut()
	return d.eject(d.lost)
}

// lost are the writes that a card has after the power went.
func (d *device) lost(l *writelog.Log) []writelog.Write {
	return fixed(d.kind, l.Len(), d.chance.Uint64())(l)
}

// fixed is what a card has if the power goes after the first n writes and
// flushes: always the same for one seed. The emulated Pi has no way to flush its
// card, so there what it wrote is kept.
func fixed(k guest.Kind, n int, seed uint64) card.Choice {
	return func(l *writelog.Log) []writelog.Write {
		chance := rand.New(rand.NewPCG(seed, 0))
		if k == guest.Pi3B {
			return l.CutUncached(n, chance)
		}
		return l.Cut(n, chance)
	}
}

func (d *device) eject(choose card.Choice) error {
	err := d.m.Eject(choose)
	d.m = nil
	return err
}

// restarted waits until the guest has restarted, and lets it.
func (d *device) restarted(ctx context.Context, start firmware.Start) (guest.End, error) {
	end, err := d.m.Wait(ctx)
	if err != nil {
		return end, err
	}
	if !end.Restarts() {
		return end, fmt.Errorf("the board went off (%s) instead of restarting; its console ended with\n%s", end.Reason, d.m.Console.Tail())
	}
	return end, d.power(start)
}

// online waits until the relay has the device, and returns how long after the
// power came.
func (d *device) online(ctx context.Context) (time.Duration, error) {
	every := 2 * time.Second
	if d.alone { // it is a figure
		every = 300 * time.Millisecond
	}
	err := d.poll(ctx, every, "the relay never had it online", func() (bool, error) {
		m, err := d.bench.machine(ctx, d.host)
		return err == nil && m != nil && m.Online, err
	})
	return time.Since(d.on), err
}

// poll asks until the answer is yes, the time is over, or the board went off.
func (d *device) poll(ctx context.Context, every time.Duration, complaint string, ask func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := ask()
		if ok && err == nil {
			return nil
		}
		switch {
		case d.m == nil:
			return fmt.Errorf("%s: the board is off", complaint)
		case !d.m.Running():
			return fmt.Errorf("%s: the board went off (%s); its console ended with\n%s", complaint, d.m.Fate(), d.m.Console.Tail())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; its console ended with\n%s", complaint, errors.Join(context.Cause(ctx), err), d.m.Console.Tail())
		}
	}
}

// farhand runs a verb of the operator's command on the device: the machine's
// name comes after the first n words.
func (d *device) farhand(ctx context.Context, n int, args ...string) (string, error) {
	all := append(append(append([]string(nil), args[:n]...), d.host), args[n:]...)
	return d.bench.farhand(ctx, all...)
}

// sh runs a shell's script on the device, as the operator.
func (d *device) sh(ctx context.Context, script string) (string, error) {
	out, err := d.farhand(ctx, 1, "exec", "--timeout", "8m", "--", "sh", "-euc", script)
	return strings.TrimSpace(out), err
}

// root runs one as root, which this card's owner allows.
func (d *device) root(ctx context.Context, script string) (string, error) {
	out, err := d.farhand(ctx, 1, "exec", "--timeout", "8m", "--", "sudo", "-n", "sh", "-euc", script)
	return strings.TrimSpace(out), err
}

// expect runs a verb whose output must hold a text.
func (d *device) expect(ctx context.Context, text string, n int, args ...string) error {
	out, err := d.farhand(ctx, n, args...)
	if err != nil {
		return err
	}
	if !strings.Contains(strings.ToUpper(out), strings.ToUpper(text)) {
		return fmt.Errorf("farhand %s doesn't say %q but %q", strings.Join(args, " "), text, out)
	}
	return nil
}

// unlike says what isn't as it should be, with the error that came with it, if
// one did.
func unlike(err error, format string, args ...any) error {
	complaint := fmt.Errorf(format, args...)
	if err != nil {
		return fmt.Errorf("%w: %w", complaint, err)
	}
	return complaint
}
