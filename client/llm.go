package client

import (
	"context"
	"sync"
	"time"

	"farhand/wire"
)

const (
	// completionTimeout is how long a completion may take in all: the relay's own
	// bound on one.
	completionTimeout = 24 * time.Hour
	// embedTimeout is the device's for loading a model, and more.
	embedTimeout = 15 * time.Minute
)

// Complete has the machine's local model continue a conversation. piece gets what
// comes before the answer, in order, from the calling goroutine; it may be nil. If
// it returns an error, or ctx ends, Complete returns that and gives the answer up.
//
// Think and Wait of the request are the extended fields; a machine or relay that
// doesn't know them ignores them.
func (s *Session) Complete(ctx context.Context, req wire.LocalLLMCompletion, piece func(wire.LocalLLMChunk) error) (wire.LocalLLMResponse, error) {
	streaming := piece != nil
	req.Stream = &streaming
	return inPieces[wire.LocalLLMResponse](ctx, s, wire.TLocalLLMCompletion, req, piece)
}

// Turn has the machine's local model work on private files. piece gets what comes
// before the answer as with Complete; with an owner who wants to see answers first
// there is nothing before.
func (s *Session) Turn(ctx context.Context, req wire.LLMTurn, piece func(wire.LLMTurnChunk) error) (wire.LLMTurnResponse, error) {
	streaming := piece != nil
	req.Stream = &streaming
	return inPieces[wire.LLMTurnResponse](ctx, s, wire.TLLMTurn, req, piece)
}

// inPieces makes a request whose answer comes in pieces.
func inPieces[Answer, Piece any](ctx context.Context, s *Session, typ wire.Type, payload any, piece func(Piece) error) (Answer, error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	box := newMailbox()
	var (
		out, none Answer
		err       error
	)
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		defer box.close()
		err = s.do(ctx, request{method: method(typ), payload: payload, timeout: completionTimeout, chunk: box.put}, &out)
	})
	for {
		payload, more := box.take()
		if !more {
			return out, err
		}
		var chunk Piece
		if err := unreadable(wire.Decode(payload, &chunk)); err != nil {
			giveUp()
			return none, err
		}
		if piece == nil {
			continue
		}
		if err := piece(chunk); err != nil {
			giveUp()
			return none, err
		}
	}
}

// LLM tells what serves models on the machine, and which it has.
func (s *Session) LLM(ctx context.Context) (wire.LLMStatus, error) {
	var out wire.LLMStatus
	err := s.do(ctx, request{method: method(wire.TLLMStatusRequest), payload: wire.Empty{}}, &out)
	return out, err
}

// Embed turns texts into vectors, at most wire.MaxEmbedInputs.
func (s *Session) Embed(ctx context.Context, r wire.LLMEmbed) (wire.LLMEmbeddings, error) {
	var out wire.LLMEmbeddings
	err := s.do(ctx, request{method: method(wire.TLLMEmbed), payload: r, timeout: embedTimeout}, &out)
	return out, err
}

// PullModel has the machine fetch a model. The stream has records of
// wire.LLMProgress and ends with reason "done", or "failed" after one with its
// Error. It goes on over a lost link; closing it gives the pull up, and the next
// one goes on from there.
func (s *Session) PullModel(ctx context.Context, model string) (*Stream, error) {
	return s.progressing(ctx, request{method: method(wire.TLLMPull), payload: wire.LLMPull{Model: model}})
}

// InstallOllama has the machine's Ollama be what an archive holds that was sent to
// path before, and whose SHA-256 is sum: a tar of the plain kind (ustar) in gzip.
// The stream is as that of PullModel. The archive is removed when it is installed.
func (s *Session) InstallOllama(ctx context.Context, path, sum string) (*Stream, error) {
	return s.progressing(ctx, request{method: method(wire.TLLMInstall), payload: wire.LLMInstall{Path: path, SHA256: sum}})
}

// UninstallOllama ends the machine's Ollama and takes it away, and its models with
// it if models is true.
func (s *Session) UninstallOllama(ctx context.Context, models bool) error {
	return s.do(ctx, request{method: method(wire.TLLMUninstall), payload: wire.LLMUninstall{Models: models}, timeout: embedTimeout}, nil)
}

// progressing opens a stream of wire.LLMProgress.
func (s *Session) progressing(ctx context.Context, r request) (*Stream, error) {
	var out wire.LLMPulling
	return open(ctx, s.client.sock, s.do, s.at, r, &out, func(payload []byte) (string, int64, int) {
		var answer wire.LLMPulling
		_ = wire.Decode(payload, &answer) // without a stream: open says so
		return answer.Stream, 0, 0
	})
}

// RemoveModel deletes a model on the machine.
func (s *Session) RemoveModel(ctx context.Context, model string) error {
	return s.do(ctx, request{method: method(wire.TLLMRemove), payload: wire.LLMRemove{Model: model}}, nil)
}

// mailbox holds the pieces of one answer until they are taken, so that who reads
// the socket never waits for who uses them. What the relay lets through bounds it.
type mailbox struct {
	mu     sync.Mutex
	some   *sync.Cond
	pieces [][]byte
	closed bool
}

func newMailbox() *mailbox {
	b := new(mailbox)
	b.some = sync.NewCond(&b.mu)
	return b
}

func (b *mailbox) put(piece []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pieces = append(b.pieces, piece)
	b.some.Signal()
}

func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.some.Signal()
}

// take waits for the next piece; false when there will be none.
func (b *mailbox) take() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pieces) == 0 && !b.closed {
		b.some.Wait()
	}
	if len(b.pieces) == 0 {
		return nil, false
	}
	piece := b.pieces[0]
	b.pieces = b.pieces[1:]
	return piece, true
}
