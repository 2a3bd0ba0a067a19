package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"farhand/internal/atomicfile"
)

// headMark separates the MAC of a head from that of a record.
const headMark = "farhand-audit-head-v1"

// head is the seal of the log: what is known to be on the disk.
type head struct {
	seq  int64
	mac  string // hmac of record seq; empty for seq 0
	from int64  // the oldest record that must still be there
}

// The head file holds two slots that are written in turn, so that a power cut
// in the middle of one leaves the other. Each has a page and disk block of its
// own (4 KiB) and holds one JSON object, padded with spaces to its fixed length.
const (
	slotDistance = 4096
	slotLength   = 256
)

func headPath(path string) string {
	const ext = ".log"
	if n := len(path) - len(ext); n > 0 && path[n:] == ext {
		path = path[:n]
	}
	return path + ".head"
}

func (h head) seal(key []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(headMark))
	b := append([]byte(`{"hmac":`), appendQuotedOrNull(nil, h.mac)...)
	b = append(b, `,"oldest_seq":`...)
	b = strconv.AppendInt(b, h.from, 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, h.seq, 10)
	m.Write(append(b, '}'))
	return hex.EncodeToString(m.Sum(nil))
}

func (h head) slot(key []byte) []byte {
	b := append([]byte(`{"seq": `), strconv.AppendInt(nil, h.seq, 10)...)
	b = append(b, `, "hmac": `...)
	b = appendQuotedOrNull(b, h.mac)
	b = append(b, `, "oldest_seq": `...)
	b = strconv.AppendInt(b, h.from, 10)
	b = append(b, `, "mac": "`...)
	b = append(b, h.seal(key)...)
	b = append(b, '"', '}')
	for len(b) < slotLength-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// errNoHead says that there is no head file at all.
var errNoHead = errors.New("the sealed head is missing")

// errBadHead says that no slot carries a MAC of our key.
var errBadHead = errors.New("the sealed head doesn't carry our seal")

// readHead returns the newest head with a good seal and the slot it is in.
func readHead(path string, key []byte) (head, int, error) {
	f, err := atomicfile.Open(headPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return head{}, 0, errNoHead
	}
	if err != nil {
		return head{}, 0, fmt.Errorf("audit head: %w", err)
	}
	defer f.Close()
	best, slot := head{seq: -1}, -1
	for i := range 2 {
		b := make([]byte, slotLength)
		if _, err := f.ReadAt(b, int64(i)*slotDistance); err != nil {
			if errors.Is(err, io.EOF) {
				continue
			}
			return head{}, 0, fmt.Errorf("audit head: %w", err)
		}
		if h, ok := parseSlot(b, key); ok && h.seq > best.seq {
			best, slot = h, i
		}
	}
	if slot < 0 {
		return head{}, 0, errBadHead
	}
	return best, slot, nil
}

func parseSlot(b, key []byte) (head, bool) {
	var raw struct {
		Seq    int64   `json:"seq"`
		HMAC   *string `json:"hmac"`
		Oldest int64   `json:"oldest_seq"`
		MAC    string  `json:"mac"`
	}
	if json.Unmarshal(b, &raw) != nil {
		return head{}, false
	}
	h := head{seq: raw.Seq, from: raw.Oldest}
	if raw.HMAC != nil {
		h.mac = *raw.HMAC
	}
	return h, hmac.Equal([]byte(h.seal(key)), []byte(raw.MAC))
}

// headFile is the head as the Log writes it: opened once, one write and one
// fdatasync a time, no new blocks, so that a full disk doesn't stop it.
type headFile struct {
	f    *os.File
	key  []byte
	next int  // the slot to write next
	last head // what the newest slot says
}

// openHeadFile opens the head for writing; h becomes its content if there is no
// good one, and slot is where the newest stands otherwise.
func openHeadFile(path string, key []byte, good bool, slot int, h head) (*headFile, error) {
	name := headPath(path)
	if !good {
		content := make([]byte, slotDistance+slotLength)
		for i := range content {
			content[i] = ' '
		}
		copy(content, h.slot(key))
		if err := atomicfile.Write(name, content, 0o600); err != nil {
			return nil, fmt.Errorf("audit head: %w", err)
		}
		slot = 0
	}
	f, err := atomicfile.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("audit head: %w", err)
	}
	return &headFile{f: f, key: key, next: 1 - slot}, nil
}

// write seals h; when it returns nil, the seal is on the disk.
func (hf *headFile) write(h head) error {
	if _, err := hf.f.WriteAt(h.slot(hf.key), int64(hf.next)*slotDistance); err != nil {
		return fmt.Errorf("audit head: %w", err)
	}
	if err := datasync(hf.f); err != nil {
		return fmt.Errorf("audit head: %w", err)
	}
	hf.next = 1 - hf.next
	hf.last = h
	return nil
}
