package helper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"farhand/shell"
)

// A message is its length (four bytes, little endian, of all that follows), a
// byte that says what it is, and a body. Both ends are the same program, so there
// are no versions: an end that doesn't understand the other closes.
type kind byte

// From the daemon. A connection begins with ask or start.
const (
	ask       kind = 'Q' // for Info
	start     kind = 'S' // body: request
	terminate kind = 'T'
	kill      kind = 'K' // body: patience in ms, four bytes
	reap      kind = 'R'
	again     kind = 'A' // asks for exited once more, if it was said
)

// From the helper.
const (
	info    kind = 'I' // body: Info as JSON
	started kind = 'P'
	failed  kind = 'E' // body: failure
	exited  kind = 'X'
	killed  kind = 'D'
	ended   kind = 'C' // body: code and signal, four bytes each
)

const (
	headerLen = 5
	// maxRequest bounds a start message: Linux takes 2 MiB of arguments and
	// environment with the usual stack limit, and 6 MiB at most (execve(2)).
	maxRequest = 8 << 20
	// maxMessage bounds all other messages.
	maxMessage = 16 << 10
	// maxStrings bounds the arguments, and the variables, of a request.
	maxStrings = 1 << 16
)

// errMalformed is a message that can't be understood.
var errMalformed = errors.New("malformed message")

// message is one message as bytes.
func message(k kind, body []byte) []byte {
	b := make([]byte, 4, 4+1+len(body))
	binary.LittleEndian.PutUint32(b, uint32(1+len(body)))
	b = append(b, byte(k))
	return append(b, body...)
}

// numbers is a message of four-byte numbers.
func numbers(k kind, values ...int) []byte {
	var body []byte
	for _, v := range values {
		body = binary.LittleEndian.AppendUint32(body, uint32(int32(v)))
	}
	return message(k, body)
}

// parseNumbers reads exactly n numbers.
func parseNumbers(body []byte, n int) ([]int, error) {
	if len(body) != 4*n {
		return nil, errMalformed
	}
	values := make([]int, n)
	for i := range values {
		values[i] = int(int32(binary.LittleEndian.Uint32(body[4*i:])))
	}
	return values, nil
}

// parseHeader reads length and kind; left is how long the body is.
func parseHeader(b [headerLen]byte, limit uint32) (k kind, left int, err error) {
	n := binary.LittleEndian.Uint32(b[:])
	if n == 0 || n > limit {
		return 0, 0, fmt.Errorf("%w: %d bytes long", errMalformed, n)
	}
	return kind(b[4]), int(n - 1), nil
}

// readMessage reads a message that carries no descriptors.
func readMessage(r io.Reader, limit uint32) (kind, []byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	k, left, err := parseHeader(header, limit)
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, left)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return k, body, nil
}

// Which descriptors come with a request, in this order, and what else is asked
// for.
const (
	withDir = 1 << iota
	withStdin
	withStdout
	withStderr
	withTerminal // no descriptor: stdin is the controlling terminal
	knownFlags   = 1<<iota - 1
)

// maxFiles is how many descriptors a request has at most.
const maxFiles = 4

// request is a shell.Spec without its files.
type request struct {
	flags byte
	path  string
	argv  []string
	env   []string
}

// encode is the body of a start message: the flags, how many arguments and how
// many variables there are (four bytes each), and then PATH, the arguments and the
// variables, each ended by a NUL, which none of them can hold.
func (r request) encode() ([]byte, error) {
	size := 9 + len(r.path) + 1
	for _, list := range [][]string{{r.path}, r.argv, r.env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return nil, errors.New("a NUL byte in an argument, a variable or PATH")
			}
			size += len(s) + 1
		}
	}
	if size >= maxRequest || len(r.argv) > maxStrings || len(r.env) > maxStrings {
		return nil, errTooLong
	}
	b := make([]byte, 0, size)
	b = append(b, r.flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.argv)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.env)))
	for _, list := range [][]string{{r.path}, r.argv, r.env} {
		for _, s := range list {
			b = append(b, s...)
			b = append(b, 0)
		}
	}
	return b, nil
}

// parseRequest is the reverse of encode.
func parseRequest(b []byte) (request, error) {
	if len(b) < 9 || b[0]&^knownFlags != 0 {
		return request{}, errMalformed
	}
	args, vars := binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:])
	if args > maxStrings || vars > maxStrings {
		return request{}, errMalformed
	}
	// One string for all, of which the others are parts.
	text := string(b[9:])
	next := func() (string, bool) {
		s, rest, ok := strings.Cut(text, "\x00")
		text = rest
		return s, ok
	}
	r := request{flags: b[0]}
	var ok bool
	if r.path, ok = next(); !ok {
		return request{}, errMalformed
	}
	for _, list := range []struct {
		to *[]string
		n  uint32
	}{{&r.argv, args}, {&r.env, vars}} {
		for range list.n {
			s, ok := next()
			if !ok {
				return request{}, errMalformed
			}
			*list.to = append(*list.to, s)
		}
	}
	if text != "" {
		return request{}, errMalformed
	}
	return r, nil
}

// files is how many descriptors the flags announce.
func (r request) files() int {
	n := 0
	for _, flag := range []byte{withDir, withStdin, withStdout, withStderr} {
		if r.flags&flag != 0 {
			n++
		}
	}
	return n
}

// Info is what a helper says about itself.
type Info struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	UID     int    `json:"uid"`
	User    string `json:"user"`
	// Exact says that killing a command is sure to find all that it started.
	Exact bool `json:"exact"`
	// Confined says that commands can't get more rights than their user has: the
	// kernel gives them none (no_new_privs), and no group of theirs is as good as
	// root.
	Confined bool `json:"confined"`
}

// status is the body of an ended message.
func status(s shell.Status) []byte { return numbers(ended, s.Code, int(s.Signal)) }
