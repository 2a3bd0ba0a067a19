package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"farhand/audit"
	"farhand/files"
	"farhand/link"
	"farhand/shim"
	"farhand/wire"
)

// transferMethods move files in pieces.
func (s *session) transferMethods() shim.Table {
	return shim.Table{
		wire.TTransferOpen:   {Handle: shim.Unary(s.openTransfer)},
		wire.TTransferChunk:  {Handle: shim.Unary(s.chunk), Lane: transferLane},
		wire.TTransferCommit: {Handle: shim.Unary(s.commit), Lane: transferLane},
		wire.TTransferAbort:  {Handle: shim.Unary(s.abort), Lane: transferLane},
		wire.TTransferRead:   {Handle: shim.Unary(s.piece), Class: link.Transfers},
		wire.TTransferList:   {Handle: shim.Unary(s.entries)},
		wire.TTransferMake:   {Handle: shim.Unary(s.make)},
	}
}

// transferLane keeps what is sent of one file in the order of the wire.
func transferLane(c *shim.Call) string {
	var r struct {
		Transfer string `json:"transfer"`
	}
	if wire.Decode(c.Payload, &r) != nil {
		return ""
	}
	return "transfer " + r.Transfer
}

func (d *services) openUploads(_ context.Context, o Options) error {
	var err error
	d.uploads, err = files.NewUploads(files.UploadOptions{Dir: filepath.Join(o.Config.StateDir, "transfers"), Log: o.Log})
	if err != nil {
		return fmt.Errorf("unfinished transfers: %w", err)
	}
	d.closers = append(d.closers, d.uploads)
	return nil
}

func (s *session) openTransfer(ctx context.Context, c *shim.Call, r wire.TransferOpen) (any, error) {
	details := func(path string, t wire.TransferOpened) []audit.Field {
		return []audit.Field{
			audit.String("path", path), audit.IntOrNull("size_bytes", r.Size), audit.Bool("create_parents", r.CreateParents),
			audit.String("transfer", t.Transfer), audit.Int("offset", t.Offset), audit.Bool("done", t.Done),
		}
	}
	return change(s, c, r.Path, details(s.told(ctx, r.Path), wire.TransferOpened{}), func() (any, []audit.Field, error) {
		by := files.Uploader{Session: s.ID(), Holder: caller(c).Holder, Hold: s.Hold}
		answer, t, err := s.d.uploads.Open(ctx, s.root, by, r, c.Data)
		return answer, details(t.Path, answer), err
	})
}

// chunk leaves no record: that of TRANSFER_OPEN says what may come, and that of
// TRANSFER_COMMIT what came.
func (s *session) chunk(ctx context.Context, c *shim.Call, r wire.TransferChunk) (any, error) {
	return nil, s.d.uploads.Write(ctx, s.ID(), r, c.Data)
}

func (s *session) commit(ctx context.Context, c *shim.Call, r wire.TransferCommit) (any, error) {
	transfer := audit.String("transfer", r.Transfer)
	return change(s, c, "", []audit.Field{transfer}, func() (any, []audit.Field, error) {
		answer, t, err := s.d.uploads.Commit(ctx, s.root, s.ID(), r)
		return answer, []audit.Field{transfer, audit.String("path", t.Path), audit.Int("size_bytes_written", t.Bytes)}, err
	})
}

func (s *session) abort(_ context.Context, c *shim.Call, r wire.TransferAbort) (any, error) {
	transfer := audit.String("transfer", r.Transfer)
	return change(s, c, "", []audit.Field{transfer}, func() (any, []audit.Field, error) {
		t, err := s.d.uploads.Abort(s.ID(), r)
		return nil, []audit.Field{transfer, audit.String("path", t.Path), audit.Int("size_bytes_dropped", t.Bytes)}, err
	})
}

func (s *session) piece(ctx context.Context, c *shim.Call, r wire.TransferRead) (any, error) {
	answer, t, err := s.root.Piece(ctx, r)
	if err == nil && s.fetching.goesOn(t.Path, answer.Payload.(wire.TransferData).Version) {
		return answer, nil
	}
	details := []audit.Field{
		audit.String("path", t.Path), audit.Int("offset", r.Offset), audit.Bool("hash_only", r.HashOnly), audit.Int("size_bytes_returned", t.Bytes),
	}
	recorded, err := look(s, c, r.Path, func() (any, []audit.Field, error) { return answer, details, err })
	if err != nil && answer != nil {
		answer.Release()
	}
	return recorded, err
}

// fetching is which files a session fetches in pieces: one record says that it
// does, where one for each piece would be four thousand for each GiB.
type fetching struct {
	mu    sync.Mutex
	files map[fetched]time.Time // when the newest piece left
}

type fetched struct{ path, version string }

const (
	fetchedMost = 64          // files that are remembered
	fetchedTime = time.Minute // after which another piece is a new reading
)

// goesOn says whether the record of an earlier piece covers this one.
func (f *fetching) goesOn(path, version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, key := time.Now(), fetched{path, version}
	last, known := f.files[key]
	if !known && len(f.files) >= fetchedMost {
		clear(f.files)
	}
	if f.files == nil {
		f.files = make(map[fetched]time.Time)
	}
	f.files[key] = now
	return known && now.Sub(last) < fetchedTime
}

func (s *session) entries(ctx context.Context, c *shim.Call, r wire.TransferList) (any, error) {
	return look(s, c, r.Path, func() (any, []audit.Field, error) {
		answer, t, err := s.root.Entries(ctx, r)
		return answer, []audit.Field{audit.String("path", t.Path), audit.String("after", s.typed(r.After)), audit.Int("entries_returned", t.Entries)}, err
	})
}

func (s *session) make(ctx context.Context, c *shim.Call, r wire.TransferMake) (any, error) {
	target := r.Target
	if s.d.private != nil && !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(r.Path), target)
	}
	target = s.told(ctx, target)
	details := func(path string) []audit.Field {
		return []audit.Field{audit.String("path", path), audit.String("kind", r.Kind), audit.String("target", target)}
	}
	return change(s, c, r.Path, details(s.told(ctx, r.Path)), func() (any, []audit.Field, error) {
		t, err := s.root.Make(ctx, r)
		return nil, details(t.Path), err
	})
}
