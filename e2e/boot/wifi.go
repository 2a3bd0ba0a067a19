package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"farhand/e2e/boot/firmware"
	"farhand/provision/rescue"
)

// wifi is a board with radios that its kernel simulates.
type wifi struct {
	*device
	passphrase string
}

// wifiSteps show the rescue network: a board whose owner wants it, and whose
// cable is pulled, becomes an access point; a second radio of the same kernel
// joins it with the passphrase of the card.
func wifiSteps(d *device) []step {
	w := &wifi{device: d}
	return []step{
		{"a card is flashed that allows the rescue network", 2 * time.Minute, w.claim},
		{"it comes online", d.longestBoot(), d.again(firmware.Start{}, "first boot")},
		{"two radios", 2 * time.Minute, w.radios},
		{"the cable is pulled: a rescue network", rescue.Patience + 4*time.Minute, w.raised},
		{"another radio joins it and sees its page", 4 * time.Minute, w.visited},
		{"the cable is back: online, and no rescue network", 4 * time.Minute, w.lowered},
		{"nothing has failed", time.Minute, d.healthy},
	}
}

func (w *wifi) claim(ctx context.Context) (err error) {
	w.passphrase, err = w.flash(ctx, "--claim", "--country", "DE", "--wifi-rescue")
	if err == nil && len(w.passphrase) != rescue.PassphraseLength {
		err = fmt.Errorf("the rescue network's passphrase is %q", w.passphrase)
	}
	return err
}

// done is what the visitor prints on the serial console at its end.
const done = "the visitor is done"

// visitor is a shell's script that acts as somebody with a phone: it waits for
// an access point, joins it by the radio that is still a station, and asks for
// the page, under its own name and under another.
const visitor = `
exec >/data/work/visit 2>&1
trap 'echo "` + done + `" >/dev/console' EXIT
clean() { sed 's/\x1b\[[0-9;]*m//g'; }
devices() { iwctl device list | clean | awk '$NF=="ap" || $NF=="station" || $(NF-1)=="ap" || $(NF-1)=="station" {print}'; }
until devices | grep -qw ap; do sleep 2; done
station=$(devices | grep -w station | awk '{print $1}')
echo "station=$station"
for try in 1 2 3 4 5 6; do
	iwctl station $station scan; sleep 4
	name=$(iwctl station $station get-networks | clean | awk '$0 ~ / psk / {sub(/^[> ]+/,""); sub(/ +psk .*/,""); print; exit}')
	[ -z "$name" ] || break
done
echo "network=$name"
iwctl --passphrase "$PASSPHRASE" station $station connect "$name"
for try in 1 2 3 4 5 6 7 8 9 10; do
	address=$(ip -4 -o addr show dev $station | awk '{print $4}')
	[ -z "$address" ] || break
	sleep 2
done
echo "address=$address"
ask() { exec 3<>/dev/tcp/10.42.0.1/80; printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$2" "$1" >&3; cat <&3; exec 3>&-; }
ask 10.42.0.1 / | sed 's/^/page: /'
ask evil.example / | sed 's/^/other: /'
ask connectivitycheck.gstatic.com /generate_204 | sed 's/^/probe: /'
`

// radios makes two and starts the visitor, who is inside since there is no air
// between an emulated board and this machine.
func (w *wifi) radios(ctx context.Context) error {
	if _, err := w.root(ctx, "modprobe mac80211_hwsim radios=2"); err != nil {
		return err
	}
	if err := w.poll(ctx, time.Second, "iwd has not seen two radios", func() (bool, error) {
		out, err := w.root(ctx, "iwctl device list")
		return strings.Count(out, "wlan") >= 2, err
	}); err != nil {
		return err
	}
	_, err := w.root(ctx, "cat >/run/visitor <<'END'\n"+visitor+"\nEND\nsystemd-run --quiet --collect -E PASSPHRASE="+w.passphrase+" bash /run/visitor")
	return err
}

func (w *wifi) cable(ctx context.Context, up bool) error {
	return w.m.Do(ctx, "set_link", map[string]any{"name": "net", "up": up}, nil)
}

func (w *wifi) raised(ctx context.Context) error {
	mark := w.m.Console.Mark()
	start := time.Now()
	if err := w.cable(ctx, false); err != nil {
		return err
	}
	if _, err := w.m.Await(ctx, mark, w.passphrase); err != nil {
		return err
	}
	w.report.measure("virt: pulled cable to rescue network", time.Since(start).Seconds(), "s", 0)
	return nil
}

func (w *wifi) visited(ctx context.Context) error {
	_, err := w.m.Await(ctx, 0, done)
	return err
}

func (w *wifi) lowered(ctx context.Context) error {
	if err := w.cable(ctx, true); err != nil {
		return err
	}
	if _, err := w.online(ctx); err != nil {
		return err
	}
	log, err := w.bench.farhand(ctx, "cat", w.host+":visit")
	if err != nil {
		return err
	}
	for _, want := range []string{"address=10.42.0.", "page: HTTP/1.1 200", "<form"} {
		if !strings.Contains(log, want) {
			return fmt.Errorf("who joined the rescue network saw no %q:\n%s", want, log)
		}
	}
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "other: ") && strings.Contains(line, "<form") {
			return fmt.Errorf("the page answers to another name:\n%s", log)
		}
	}
	return w.poll(ctx, 2*time.Second, "the rescue network stays", func() (bool, error) {
		out, err := w.root(ctx, "iwctl device list")
		return !strings.Contains(out, " ap"), err
	})
}
