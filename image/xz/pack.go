package xz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// packing runs the xz program over the pieces with content, a few at a time and
// a few ahead of who takes them.
type packing struct {
	results []chan result
	taken   int
	ahead   chan struct{}
	all     sync.WaitGroup
}

type result struct {
	chunks []byte
	err    error
}

func startPacking(ctx context.Context, image io.ReaderAt, pieces []piece, o Options) *packing {
	workers := max(1, o.Workers)
	p := &packing{ahead: make(chan struct{}, 2*workers)}
	var work []piece
	for _, x := range pieces {
		if !x.hole && x.copyOf < 0 {
			work = append(work, x)
			p.results = append(p.results, make(chan result, 1))
		}
	}
	running := make(chan struct{}, workers)
	p.all.Go(func() {
		for i, x := range work {
			select { // Bounds what waits to be taken.
			case p.ahead <- struct{}{}:
			case <-ctx.Done():
			}
			running <- struct{}{}
			p.all.Go(func() {
				chunks, err := pack(ctx, image, x, o)
				p.results[i] <- result{chunks, err}
				<-running
			})
		}
	})
	return p
}

// next waits for the next piece.
func (p *packing) next() ([]byte, error) {
	r := <-p.results[p.taken]
	p.taken++
	select {
	case <-p.ahead:
	default: // cancelled before it was counted
	}
	return r.chunks, r.err
}

func (p *packing) wait() { p.all.Wait() }

// pack compresses one piece to LZMA2 chunks without the end's mark.
//
// The first literal is coded by the byte before it, of which the program sees
// none and takes a zero, where the decoder sees the end of the piece before. So
// no bits of that byte may count unless they are zeros, as seam sees to. Where
// they aren't, lc=0.
func pack(ctx context.Context, image io.ReaderAt, x piece, o Options) ([]byte, error) {
	literal := 3
	if x.Start > 0 {
		before := make([]byte, 1)
		if _, err := image.ReadAt(before, x.Start-1); err != nil {
			return nil, err
		}
		if before[0]>>5 != 0 { // lc=3 looks at the upper three
			literal = 0
		}
	}
	filter := fmt.Sprintf("--lzma2=preset=%d,dict=%d,lc=%d,lp=0,pb=2", o.Level, max(o.Segment, 4096), literal)
	cmd := exec.CommandContext(ctx, "xz", "--format=raw", filter, "--threads=1", "--stdout", "--no-warn", "--quiet")
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin"}
	cmd.Stdin = io.NewSectionReader(image, x.Start, x.Length)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("xz: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	b := out.Bytes()
	if len(b) < 2 || b[len(b)-1] != 0 {
		return nil, errors.New("xz: its LZMA2 has no end")
	}
	return b[:len(b)-1], nil
}

// startOver takes from a piece's first chunk the order to forget what came
// before; the first of all keeps it, as the format asks.
func startOver(chunks []byte, first bool) error {
	switch c := chunks[0]; {
	case first && (c == 1 || c >= 0xe0):
	case first:
		return fmt.Errorf("the first chunk's kind is %#x", c)
	case c == 1: // stored, dictionary reset
		chunks[0] = 2
	case c >= 0xe0: // fresh models, dictionary reset
		chunks[0] = c&^0xe0 | 0xc0
	default:
		return fmt.Errorf("a chunk of kind %#x begins a piece", c)
	}
	return nil
}
