package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/client"
	"farhand/daemon"
	"farhand/internal/testenv"
	"farhand/wire"
)

// card is an ext4 of its own for a daemon's state.
type card struct {
	t     *testing.T
	image string
	at    string
}

func newCard(t *testing.T, at string) *card {
	t.Helper()
	c := &card{t, filepath.Join(t.TempDir(), "card"), at}
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(c.image, nil, 0o600)
	if err == nil {
		err = os.Truncate(c.image, 32<<20)
	}
	if err == nil {
		err = c.try("mke2fs", "-q", "-F", "-t", "ext4", c.image)
	}
	if err == nil {
		err = c.mount()
	}
	testenv.Need(t, "mount", err == nil, fmt.Sprint("an ext4 on a loop device: ", err))
	t.Cleanup(func() { c.try("umount", "-l", at) })
	_, err = os.Stat(c.trigger())
	testenv.Need(t, "mount", err == nil, fmt.Sprint("ext4's trigger_fs_error: ", err))
	return c
}

func (c *card) mount() error {
	if err := c.try("mount", "-o", "loop,errors=remount-ro", c.image, c.at); err != nil {
		return err
	}
	return os.Chmod(c.at, 0o700)
}

func (c *card) try(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// trigger is the file that has ext4 meet an error
// (Documentation/ABI/testing/sysfs-fs-ext4).
func (c *card) trigger() string {
	out, err := exec.Command("findmnt", "-no", "SOURCE", c.at).Output()
	if err != nil {
		c.t.Fatal(err)
	}
	return filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(out))), "trigger_fs_error")
}

// fail has the kernel find an error, after which it takes no more writes.
func (c *card) fail() {
	c.t.Helper()
	if err := os.WriteFile(c.trigger(), []byte("test"), 0o200); err != nil {
		c.t.Fatal(err)
	}
}

// repair is what a start of the appliance does.
func (c *card) repair() {
	c.t.Helper()
	if err := c.try("umount", c.at); err != nil {
		c.t.Fatal(err)
	}
	// The kernel lets go of the loop device in its own time, and writes until then.
	eventually(c.t, "the end of the loop device", func() error {
		out, err := exec.Command("losetup", "-j", c.image).Output()
		if err == nil && len(out) > 0 {
			err = fmt.Errorf("it is still there: %s", out)
		}
		return err
	})
	err := exec.Command("e2fsck", "-fy", c.image).Run() // 1: repaired
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() > 1) {
		c.t.Fatal(err)
	}
	if err := c.mount(); err != nil {
		c.t.Fatal(err)
	}
}

// TestReadOnlyDisk: field case 72. A card that turns read-only under the daemon
// refuses what can't be recorded, loudly, and crashes nothing; started anew, the
// daemon works with a copy in memory, is still reached, and says everywhere that
// nothing is kept; on a repaired disk all is as before, with its login.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	helper, env := b.appliance()
	c := newCard(t, b.stateDir())
	made := parse[client.IssuedClaim](t, b.owner.must("claim", "create", "--json", "--name", "bench", "--allow", "files,shell"))
	b.write(filepath.Join(b.dir, "run", "claim"), made.ClaimKey)
	b.startDaemon(env)
	b.daemon.await(0, `^Online`)
	b.owner.must("exec", "--", "true")

	// Nobody would start it anew, so it stays, and does nothing unrecorded.
	c.fail()
	marker := filepath.Join(b.root(), "marker")
	b.owner.fails(255, wire.InternalError, "exec", "--", "touch", marker)
	if _, err := os.Stat(marker); err == nil {
		t.Error("a command ran that couldn't be recorded")
	}
	eventually(t, "status to say so", func() error {
		s := b.applianceStatus(env)
		if s.State != daemon.StateOnline || !strings.Contains(s.Machine.Degraded, "read-only") || len(s.Warnings) < 2 {
			return fmt.Errorf("it says %s, %q, %q", s.State, s.Machine.Degraded, s.Warnings)
		}
		return nil
	})
	b.daemon.kill()

	// Started anew, by a service manager.
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(b.dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	go func() {
		for buf := make([]byte, 4096); ; {
			if _, err := notify.Read(buf); err != nil {
				return
			}
		}
	}()
	managed := []string{env, "NOTIFY_SOCKET=" + filepath.Join(b.dir, "notify")}
	for range 2 { // a copy outlives the daemon
		helper.forget()
		b.startDaemon(managed...)
		b.daemon.await(0, `^Online`)
		b.owner.must("exec", "--", "true")
		eventually(t, "the relay to know", func() error {
			if f := parse[client.Machine](t, b.owner.must("machines", "bench", "--json")).Facts; f == nil || !strings.Contains(f.Degraded, "in memory") {
				return fmt.Errorf("it knows %+v", f)
			}
			return nil
		})
		eventually(t, "the screen to say so", func() error {
			helper.mu.Lock()
			defer helper.mu.Unlock()
			if !strings.Contains(helper.status.Detail, "read-only") {
				return fmt.Errorf("it says %+v", helper.status)
			}
			return nil
		})
		b.daemon.kill()
	}
	if code := helper.code(); code != "" {
		t.Errorf("the code %s was shown", code)
	}

	// The disk is well again: what was on it counts, and the login of meanwhile.
	c.repair()
	b.startDaemon(managed...)
	b.daemon.await(0, `^Online`)
	b.owner.must("exec", "--", "touch", marker)
	if s := b.applianceStatus(env); s.Machine.Degraded != "" || s.StateDir != b.stateDir() {
		t.Errorf("status says %+v", s)
	}

	// With somebody to start it anew it doesn't wait for that.
	c.fail()
	if code := b.daemon.exit(); code != 1 {
		t.Errorf("it ends with %d", code)
	}
}

// A disk without room at the moment of the pairing ends nothing: what the
// platform gave isn't lost, and is stored when there is room.
func TestPairingOnAFullDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := os.MkdirAll(b.stateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", b.stateDir(), "tmpfs", 0, "size=512k,mode=700")
	testenv.Need(t, "mount", err == nil, fmt.Sprint("a small tmpfs: ", err))
	t.Cleanup(func() { unix.Unmount(b.stateDir(), unix.MNT_DETACH) })
	b.startDaemon()
	b.daemon.await(0, `farhand approve [A-Z]{4}-[A-Z]{4}`)
	ballast := filepath.Join(b.stateDir(), "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil { // until it is full
		_, err = f.Write(make([]byte, 512))
	}
	b.approve(0, "files")
	b.daemon.await(0, "pairing failed")
	if s := b.awaitState(daemon.StatePairing); !strings.Contains(s.Detail, "no space left") && !strings.Contains(s.Detail, "disk is full") {
		t.Errorf("status says %q", s.Detail)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.Close()
	b.mustd("", "resume") // at once, rather than in a minute
	b.daemon.await(0, `^Online`)
}
