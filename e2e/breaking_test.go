package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"farhand/client"
	"farhand/wire"
)

// nasty are arguments that no operation can make anything of, and some that one
// may be careless with.
var nasty = []string{
	`null`, `[]`, `7`, `"x"`, `true`, `{}`, `{"line":null,"lines":null,"value":null}`,
	`{"line":-1}`, `{"line":1e99}`, `{"line":4294967296}`, `{"line":"` + strings.Repeat("9", 400) + `"}`, `{"line":{"a":1}}`, `{"line":"GPIO17\u0000"}`, `{"line":"../../etc/passwd"}`,
	`{"lines":[` + strings.Repeat("17,", 5000) + `17]}`, `{"lines":{"":1}}`, `{"lines":{"17":2}}`, `{"lines":[[17]]}`, `{"lines":[]}`, `{"line":17,"lines":{"17":0}}`,
	`{"line":17,"value":1e400}`, `{"line":17,"value":-1}`, `{"line":17,"value":"perhaps"}`, `{"line":17,"value":0,"on_release":"explode"}`,
	`{"line":17,"value":0,"deadman_seconds":-1}`, `{"line":17,"value":0,"deadman_seconds":1e300}`, `{"line":17,"value":0,"deadman_seconds":0.0000001}`,
	`{"line":17,"frequency_hz":0,"duty":0.5}`, `{"line":17,"frequency_hz":1e18,"duty":0.5}`, `{"line":17,"frequency_hz":-5,"duty":7}`, `{"line":17,"period_ns":-9223372036854775808,"duty_ns":9223372036854775807}`,
	`{"line":17,"edge":"sideways"}`, `{"line":17,"poll_seconds":1e-9}`, `{"line":17,"credit":-1}`, `{"line":17,"debounce_us":-1}`, `{"line":17,"debounce_seconds":1e30}`,
	`{"data":7}`, `{"data":"!!!"}`, `{"data":"AAAA"}`, `{"data":[256,-1]}`, `{"size":-1}`, `{"size":9223372036854775807}`, `{"timeout_seconds":-1}`, `{"timeout_seconds":1e300}`, `{"timeout_seconds":0.001,"until":""}`,
	`{"mode":{"baudrate":-1}}`, `{"mode":{"baudrate":1e12}}`, `{"mode":7}`, `{"from":-1,"credit":99999999999}`,
	`{"address":-1}`, `{"address":1024,"read":1}`, `{"address":"0x76","read":-1}`, `{"address":"0x76","read":9223372036854775807}`, `{"address":118,"segments":[` + strings.Repeat(`{"read":1},`, 100) + `{"read":1}]}`,
	`{"address":"0x76","protocol":"write_block","command":-1,"data":[]}`, `{"first":"0x77","last":"0x08"}`, `{"write":[1],"read":2147483648}`, `{"write":[],"mode":99}`, `{"write":[1],"speed_hz":-1}`, `{"write":[1],"bits":77}`,
	`{"endpoint":-1}`, `{"endpoint":"0xffffffffff"}`, `{"endpoint":129,"size":-1}`, `{"interface":999,"endpoint":1,"data":""}`, `{"request_type":-1,"request":256,"value":65536,"index":-1}`, `{"request_type":128,"request":6,"value":256,"length":2147483647}`,
	`{"request_type":0,"request":5,"value":9}`, `{"configuration":0}`, `{"action":"set","report":"odd","id":-1}`,
	`{"action":"explode"}`, `{"path":"` + strings.Repeat("../", 300) + `etc/passwd"}`, `{"path":"\u0000"}`, `{"action":"delete","path":""}`, `{"targets":{"tool0":1e9}}`, `{"tool0":"hot"}`, `{"bed":-40}`, `{"gcode":["M112\nM112"]}`, `{"gcode":"` + strings.Repeat("G", 100000) + `"}`,
	`{"x":1e308,"home":"all"}`, `{"home":["w"]}`, `{"speed":0,"x":1}`, `{"interval_seconds":-1}`,
	`{"steps":[{"send":"x"}]}`, `{"patterns":["(((((("],"timeout_seconds":0.01}`, strings.Repeat(`{"a":`, 300) + `1` + strings.Repeat(`}`, 300),
}

// every operation on a device of its family.
var operations = map[string][]string{
	chip:      {wire.OpGPIOGet, wire.OpGPIOSet, wire.OpGPIOConfigure, wire.OpGPIOWatch, wire.OpGPIOPWM, wire.OpGPIOInfo, wire.OpRelease, "GPIO_EXPLODE", ""},
	echo:      {wire.OpSerialWrite, wire.OpSerialRead, wire.OpSerialTransact, wire.OpSerialExpect, wire.OpSerialControl, wire.OpSerialWatch, wire.OpRelease},
	"i2c:1":   {wire.OpI2CTransfer, wire.OpI2CSMBus, wire.OpI2CScan, wire.OpRelease},
	"spi:0.0": {wire.OpSPITransfer, wire.OpRelease},
	usbEcho:   {wire.OpUSBDescribe, wire.OpUSBControl, wire.OpUSBSend, wire.OpUSBReceive, wire.OpUSBWatch, wire.OpUSBHID, wire.OpUSBConfigure, wire.OpUSBDetach, wire.OpRelease},
	printer:   {wire.OpPrinterFiles, wire.OpPrinterUpload, wire.OpPrinterJob, wire.OpPrinterTemperature, wire.OpPrinterCommand, wire.OpPrinterMove, wire.OpPrinterWatch, wire.OpRelease},
	labeller:  {wire.OpPrinterStatus, wire.OpPrinterCommand, wire.OpRelease},
}

// Whatever is in the arguments of an operation, it is answered in time, never
// with an internal error, and the daemon goes on as if nothing had been.
func TestNastyArguments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	before := b.footprint()
	var wg sync.WaitGroup
	var done atomic.Int64
	for device, ops := range operations {
		u := b.user(b.newToken("of " + device))
		wg.Go(func() {
			for _, op := range ops {
				for _, args := range nasty {
					if rest, ok := strings.CutPrefix(args, `{"`); ok && !strings.Contains(args, "timeout_seconds") {
						args = `{"timeout_seconds":0.01,"` + rest // else some would wait for their default, which is good
					}
					began := time.Now()
					r, err := u.try(device, op, args)
					done.Add(1)
					if err != nil && slices.Contains([]wire.Code{wire.InternalError, client.RelayUnreachable, wire.RequestTimeout, wire.OpUnconfirmed}, wire.CodeOf(err)) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s %s %.120s: %v %v", device, op, args, err, wire.AsError(err).Details)
					}
					if took := time.Since(began); took > 15*time.Second {
						t.Errorf("%s %s %.120s took %s", device, op, args, took)
					}
					var opened wire.Opened
					_ = json.Unmarshal(r, &opened) // most results open none
					if opened.Stream != "" {
						_, _ = u.try(device, wire.OpRelease, `{}`) // which ends it
					}
				}
			}
			u.do(device, wire.OpRelease, `{}`)
		})
	}
	wg.Wait()
	t.Logf("%d operations", done.Load())
	// Devices that there aren't.
	u := b.user("")
	for _, device := range []string{"", " ", "gpio", "gpio:", "gpio:*", "*", "/etc/passwd", "\x00", strings.Repeat("x", 100_000), "serial:../../x", "usb:\u202e"} {
		if _, err := u.try(device, wire.OpGPIOGet, `{"line":17}`); err == nil || wire.CodeOf(err) == wire.InternalError {
			t.Errorf("%.40q: %v", device, err)
		}
	}
	u.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	if got := u.level("27"); got != 1 {
		t.Errorf("level %d", got)
	}
	u.do(usbEcho, wire.OpUSBSend, `{"interface":0,"endpoint":1,"data":"AA=="}`)
	u.do(psu, wire.OpSerialTransact, `{"data":"KklETj8K","until":"Cg=="}`)
	for _, device := range []string{chip, usbEcho, psu} {
		u.do(device, wire.OpRelease, `{}`)
	}
	b.settles(before)
	b.wholeAudit()
}

// footprint is what the daemon takes of the machine.
type footprint struct{ fds, threads, kib int }

func (b *bench) footprint() footprint {
	b.t.Helper()
	proc := fmt.Sprintf("/proc/%d", b.daemon.cmd.Process.Pid)
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		b.t.Fatal(err)
	}
	f := footprint{fds: len(fds)}
	for line := range strings.Lines(string(b.read(filepath.Join(proc, "status")))) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			f.kib, err = strconv.Atoi(fields[1])
		case "Threads:":
			f.threads, err = strconv.Atoi(fields[1])
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return f
}

// settles waits until the daemon takes little more than before: sessions stay,
// with a socket each.
func (b *bench) settles(before footprint) {
	b.t.Helper()
	within(b.t, 30*time.Second, "what the daemon takes", func() error {
		// A session has a socket and a descriptor of its root.
		room := 3 * len(parse[struct{ Sessions []struct{} }](b.t, b.owner.must("sessions", "--json")).Sessions)
		if now := b.footprint(); now.fds > before.fds+room+4 || now.threads > before.threads+20 || now.kib > before.kib+48<<10 {
			return fmt.Errorf("%+v, before %+v", now, before)
		}
		return nil
	})
}

// Four sessions that all want the same devices, for a while: each gets an answer
// to everything, nobody starves, and nothing is left.
func TestHammer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	before := b.footprint()
	// Three seconds, and as long as a busy machine needs until each has had its turns.
	const enough = 20
	began := time.Now()
	var served [4]atomic.Int64
	over := func() bool {
		since := time.Since(began)
		for i := range served {
			if served[i].Load() < enough {
				return since > patience
			}
		}
		return since > 3*time.Second
	}
	var wg sync.WaitGroup
	counts := make([]map[wire.Code]int, 4)
	for i := range counts {
		u := b.user(b.newToken(fmt.Sprintf("session %d", i)))
		n := make(map[wire.Code]int)
		counts[i] = n
		wg.Go(func() {
			for round := 0; !over(); round++ {
				for _, x := range []struct{ device, op, args string }{
					{usbEcho, wire.OpUSBSend, `{"interface":0,"endpoint":1,"data":"aGVsbG8="}`},
					{usbEcho, wire.OpUSBWatch, `{"interface":0,"endpoint":"0x81"}`},
					{usbEcho, wire.OpUSBReset, `{}`},
					{usbEcho, wire.OpRelease, `{}`},
					{echo, wire.OpSerialTransact, `{"data":"aGVsbG8=","size":5,"timeout_seconds":0.1}`},
					{echo, wire.OpSerialWatch, `{"credit":100}`},
					{echo, wire.OpSerialWrite, `{"data":"aGVsbG8="}`},
					{echo, wire.OpRelease, `{}`},
					{chip, wire.OpGPIOSet, `{"lines":{"17":1,"23":1},"on_release":0}`},
					{chip, wire.OpGPIOPWM, `{"line":23,"frequency_hz":1000,"duty":0.5}`},
					{chip, wire.OpGPIOWatch, `{"lines":[24,27]}`},
					{chip, wire.OpGPIOGet, `{"lines":[27,17,24,23]}`},
					{chip, wire.OpRelease, fmt.Sprintf(`{"lines":[%d]}`, []int{17, 23, 24, 27}[round%4])},
					{chip, wire.OpRelease, `{}`},
					{"i2c:1", wire.OpI2CTransfer, `{"address":"0x76","write":[208],"read":1}`},
				} {
					_, err := u.try(x.device, x.op, x.args)
					code := wire.CodeOf(err)
					if err == nil {
						code = ""
						served[i].Add(1)
					}
					n[code]++
					if err != nil && !slices.Contains([]wire.Code{wire.HardwareBusy, wire.DeviceGone, wire.HardwareTransferFailed, wire.ShimOverloaded, wire.InvalidArgument}, code) {
						t.Errorf("%s %s: %v", x.op, x.args, err)
					}
				}
			}
		})
	}
	wg.Wait()
	for i, n := range counts {
		if n[""] < enough {
			t.Errorf("session %d did little: %v", i, n)
		}
	}
	t.Logf("answers: %v", counts)
	u := b.user("")
	u.do(chip, wire.OpGPIOSet, `{"lines":{"17":0,"23":0,"24":0},"on_release":"input"}`)
	u.do(usbEcho, wire.OpUSBDescribe, `{}`)
	u.do(echo, wire.OpSerialWrite, `{"data":"AA=="}`)
	if n := strings.Count(b.ledger(), `"line"`); n < 3 || n > 4 {
		t.Errorf("the ledger has %s", b.ledger())
	}
	b.settles(before)
	b.wholeAudit()
}

// A receiver that doesn't read holds up nobody, and gets the rest with its gaps.
func TestSlowReceiver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	slow, quick, own := b.user(b.newToken("slow")), b.user(b.newToken("quick")), b.user("")
	before := b.footprint()
	lazy := watch[wire.GPIORecord](slow, chip, wire.OpGPIOWatch, `{"line":27,"credit":2000}`)
	brisk := watch[wire.GPIORecord](quick, chip, wire.OpGPIOWatch, `{"line":24}`)
	own.do(chip, wire.OpGPIOPWM, `{"line":17,"frequency_hz":2000,"duty":0.5,"mode":"software"}`)
	for i := range 100 {
		own.do(chip, wire.OpGPIOSet, fmt.Sprintf(`{"line":23,"value":%d}`, (i+1)%2))
		edge(t, brisk, []string{"rising", "falling"}[i%2])
	}
	eventually(t, "more than a stream keeps", func() error {
		st, a, err := own.Attach(t.Context(), brisk.st.ID(), nil, 1) // only to have the time pass in requests
		if err != nil {
			return err
		}
		st.Detach()
		if a.Next < 100 {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	own.do(chip, wire.OpRelease, `{}`)
	slow.do(chip, wire.OpRelease, `{"line":27}`)
	n := int64(0)
	var seq uint32
	for r, ok := lazy.next(); ok; r, ok = lazy.next() {
		if r.LineSeq != 0 && r.LineSeq < seq {
			t.Fatalf("%+v after %d", r, seq)
		}
		seq = max(seq, r.LineSeq)
		n++
	}
	if lazy.end.Reason != "released" || n == 0 {
		t.Errorf("%d records came, and the end %+v", n, lazy.end)
	}
	if int64(seq) > n+lazy.lost {
		t.Errorf("%d edges, of which %d came and %d are said to be lost", seq, n, lazy.lost)
	}
	b.settles(before)
}
