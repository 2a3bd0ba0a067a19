package observe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"farhand/wire"
)

// Journal reads the machine's journal. Its methods are safe for concurrent use.
type Journal struct {
	Root    string // of /var/log and /run/log, looked at only if nothing comes; "/" if empty
	Program string // journalctl, or the path of it
	Path    string // PATH to look for it
}

const (
	// maxEntry is the longest line of journalctl's that is read: larger entries are
	// lost, as a gap. journald's own bound is LineMax=48K for what programs print;
	// only what they send themselves may be larger.
	maxEntry = 1 << 20
	// maxIdentifier bounds names in a record, in characters.
	maxIdentifier = 256
	// killWait is how long a killed journalctl may keep its pipes.
	killWait = 2 * time.Second
)

// fields are what is asked of journalctl beside the timestamps, which it always
// gives.
const fields = "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_COMM,_PID,SYSLOG_PID,_SYSTEMD_UNIT,UNIT"

// unitName is a unit's name or a pattern of some (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.@\\*?\[\]][A-Za-z0-9:_.@\\*?\[\]!-]*$`)

// arguments are journalctl's for a request, or what is wrong with that.
func arguments(r wire.LogsRequest) ([]string, error) {
	args := []string{"--output=json", "--output-fields=" + fields, "--all", "--no-pager", "--quiet"}
	lines := wire.LogLinesDefault
	if r.Since != nil {
		lines = wire.MaxLogLines
		if s := *r.Since; !(s >= 0 && s < 1e11) {
			return nil, invalid("since", "must be seconds since 1970, not %g", s)
		}
		args = append(args, "--since=@"+strconv.FormatFloat(*r.Since, 'f', 6, 64))
	}
	if r.Lines != nil {
		lines = *r.Lines
	}
	if lines < 0 || lines > wire.MaxLogLines {
		return nil, invalid("lines", "must be 0 to %d, not %d", wire.MaxLogLines, lines)
	}
	args = append(args, "--lines="+strconv.Itoa(lines))
	if r.Unit != "" {
		if len(r.Unit) > 256 || !unitName.MatchString(r.Unit) {
			return nil, invalid("unit", "is no name of a systemd unit")
		}
		args = append(args, "--unit="+r.Unit)
	}
	if r.Priority != nil {
		if *r.Priority < 0 || *r.Priority > 7 {
			return nil, invalid("priority", "must be 0 (emergency) to 7 (debug), not %d", *r.Priority)
		}
		args = append(args, "--priority="+strconv.Itoa(*r.Priority))
	}
	if r.Follow {
		args = append(args, "--follow")
	}
	return args, nil
}

func invalid(field, format string, args ...any) error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}

// Open begins to read. DEPENDENCY_MISSING and FEATURE_NOT_SUPPORTED say that this
// machine has no journal, PERMISSION_DENIED that the daemon may not read it. The
// Reader ends with ctx.
func (j Journal) Open(ctx context.Context, r wire.LogsRequest) (*Reader, error) {
	args, err := arguments(r)
	if err != nil {
		return nil, err
	}
	program, err := j.find()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + j.Path, "LC_ALL=C"} // nothing of the daemon's own
	cmd.Dir, cmd.WaitDelay = "/", killWait
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	rd := &Reader{cmd: cmd, out: out, quit: context.AfterFunc(ctx, func() { out.Close() })} // a child of its own may hold the other end
	cmd.Stderr = &rd.complaint
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	rd.lines = bufio.NewReaderSize(out, 32<<10)
	rd.first = make(chan struct{})
	go func() {
		defer close(rd.first)
		_, _ = rd.lines.Peek(1) // what it fails with comes again
	}()
	quiet := time.NewTimer(firstWait)
	defer quiet.Stop()
	select {
	case <-rd.first:
		if rd.lines.Buffered() > 0 {
			return rd, nil
		}
	case <-quiet.C:
	}
	// journalctl says nothing where there is no journal, or none that it may read.
	if err := j.readable(); err != nil {
		rd.Close()
		return nil, err
	}
	return rd, nil
}

// firstWait is how long the first entry may take until it is asked why none comes.
const firstWait = 300 * time.Millisecond

// find is the program's path.
func (j Journal) find() (string, error) {
	if filepath.IsAbs(j.Program) {
		return j.Program, nil
	}
	for dir := range strings.SplitSeq(j.Path, ":") {
		p := filepath.Join(dir, j.Program)
		if info, err := os.Stat(p); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", wire.Errorf(wire.DependencyMissing, "this machine has no %s: it keeps no journal of systemd's", j.Program).
		With("dependency", j.Program).With("hint", "its logs may be files: look in /var/log with a root that has it, or with a command")
}

// readable says whether there is a journal of the system that may be read.
func (j Journal) readable() error {
	root := j.Root
	if root == "" {
		root = "/"
	}
	found := false
	for _, dir := range []string{"var/log/journal", "run/log/journal"} {
		machines, err := os.ReadDir(filepath.Join(root, dir))
		if errors.Is(err, fs.ErrPermission) {
			found = true
		}
		for _, m := range machines {
			f, err := os.Open(filepath.Join(root, dir, m.Name(), "system.journal"))
			if err == nil {
				return f.Close()
			}
			found = found || errors.Is(err, fs.ErrPermission)
		}
	}
	if found {
		return wire.Errorf(wire.PathNotAllowed, "the daemon's user may not read the journal").
			With("hint", "put that user into the group systemd-journal and start the daemon anew")
	}
	return wire.Errorf(wire.FeatureNotSupported, "this machine keeps no journal: there is none in /var/log/journal and /run/log/journal").
		With("feature", "logs").With("hint", "it is systemd-journald that would write it")
}

// Reader is one reading of the journal. One goroutine uses it.
type Reader struct {
	cmd       *exec.Cmd
	out       io.Closer
	lines     *bufio.Reader
	quit      func() bool   // forgets that the pipe is to be closed with the context
	first     chan struct{} // closed with the first bytes, or the end
	complaint head
}

// errTooLong is an entry that can't be had.
var errTooLong = errors.New("entry is too long")

// Next waits for the next entry. lost says how many came before it that can't
// be had: they were too long, or no entries at all. At the end it is io.EOF.
func (r *Reader) Next() (rec wire.LogRecord, lost int64, err error) {
	<-r.first
	for {
		line, err := r.line()
		switch {
		case errors.Is(err, errTooLong):
			lost++
			continue
		case err != nil:
			return wire.LogRecord{}, lost, err
		}
		rec, err := parseEntry(line)
		if err != nil {
			lost++
			continue
		}
		return rec, lost, nil
	}
}

// line is the next line, without its end.
func (r *Reader) line() ([]byte, error) {
	var long []byte // of a line that is longer than the buffer
	tooLong := false
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(long)+len(part) > maxEntry {
			tooLong, long = true, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			if !tooLong {
				long = append(long, part...)
			}
			continue
		}
		switch {
		case tooLong:
			return nil, errTooLong
		case err != nil && len(long)+len(part) == 0:
			return nil, err
		case long == nil:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
		return bytes.TrimSuffix(append(long, part...), []byte("\n")), nil
	}
}

// Close ends the reading before its time.
func (r *Reader) Close() {
	_ = r.cmd.Cancel() // fails if it is over
	r.out.Close()
	_ = r.Wait() // it was killed
}

// Wait waits for the end of the program, after Next's io.EOF, and says why it
// failed.
func (r *Reader) Wait() error {
	<-r.first
	err := r.cmd.Wait()
	r.quit()
	if err == nil {
		return nil
	}
	if said := strings.TrimSpace(r.complaint.String()); said != "" {
		return fmt.Errorf("journalctl: %s", wire.Clean(said, maxIdentifier))
	}
	return fmt.Errorf("journalctl: %w", err)
}

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	const most = 1 << 10
	h.Buffer.Write(p[:min(len(p), max(0, most-h.Len()))])
	return len(p), nil
}

// micros reads microseconds since 1970, as an entry has them; 0 if it has none.
func micros(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/2 {
		return 0
	}
	return n
}
