package provision

import (
	"os"
	"strings"
	"testing"
)

// The partitions are those of the disk that the root is on, whatever it is
// called.
func TestPartitions(t *testing.T) {
	m := newMachine(t)
	for name, number := range map[string]string{"mmcblk1p1": "1", "mmcblk1p2": "2", "mmcblk1p5": "5", "mmcblk1p7": "7"} {
		m.write("/sys/devices/soc/mmcblk1/"+name+"/partition", number+"\n")
	}
	m.write("/sys/devices/soc/mmcblk1/queue/x", "")
	m.write("/sys/dev/block/", "")
	if err := os.Symlink("../../devices/soc/mmcblk1/mmcblk1p5", m.path("/sys/dev/block/179:5")); err != nil {
		t.Fatal(err)
	}
	m.write("/proc/self/mountinfo", "21 1 179:5 / / ro - squashfs /dev/root ro\n22 21 0:5 / /data rw - tmpfs tmpfs rw\n")
	for number, want := range map[int]string{1: "/dev/mmcblk1p1", 2: "/dev/mmcblk1p2", 3: ""} {
		got, err := m.partition(number)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%d: %q, %v", number, got, err)
		}
	}
	m.write("/proc/self/mountinfo", "21 1 0:22 / / ro - overlay overlay ro\n22 21 179:5 / /data rw - ext4 /dev/x rw\n")
	if got, err := m.partition(1); got != "/dev/mmcblk1p1" {
		t.Errorf("%q, %v", got, err)
	}
	m.write("/proc/self/mountinfo", "21 1 0:22 / / ro - overlay overlay ro\n")
	if _, err := m.partition(1); err == nil || !strings.Contains(err.Error(), "no block device") {
		t.Error(err)
	}
}
