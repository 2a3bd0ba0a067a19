package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"farhand/wire"
)

// TestUploadCrowd is four sessions of one holder that open the same few files, send,
// finish and abort them at once, while sessions and in the end the daemon close:
// nothing hangs, nothing is left open, and what was finished is whole.
func TestUploadCrowd(t *testing.T) {
	b := newUploads(t)
	content := bytes.Repeat([]byte("farhand\n"), 1000)
	sum := sha256.Sum256(content)
	size := int64(len(content))
	const piece = 3000
	expected := func(err error) bool {
		for _, code := range []wire.Code{wire.TransferNotFound, wire.TransferOffset, wire.TransferMismatch, wire.ShimOverloaded, wire.InternalError} {
			if errors.Is(err, code) {
				return true
			}
		}
		return err == nil
	}
	var crowd sync.WaitGroup
	for n := range 4 {
		session := fmt.Sprint("s", n%3) // two of them are one session's
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			ctx := t.Context()
			for i := range 60 {
				if n == 3 && i == 55 {
					b.Uploads.Close()
				}
				req := wire.TransferOpen{Path: fmt.Sprint("file", seed.IntN(2)), Size: &size, Key: "k"}
				if seed.IntN(8) == 0 {
					req.Key = ""
				}
				o, _, err := b.Uploads.Open(ctx, b.Root, b.by(session), req, nil)
				if !expected(err) {
					t.Error("open:", err)
				}
				if err != nil {
					continue
				}
				for at := o.Offset; at < size && err == nil; at += piece {
					err = b.Uploads.Write(ctx, session, wire.TransferChunk{Transfer: o.Transfer, Offset: at}, content[at:min(at+piece, size)])
				}
				switch seed.IntN(4) {
				case 0:
					b.Uploads.EndSession(session)
				case 1:
					_, err = b.Uploads.Abort(session, wire.TransferAbort{Transfer: o.Transfer})
				default:
					if err == nil {
						_, _, err = b.Uploads.Commit(ctx, b.Root, session, wire.TransferCommit{Transfer: o.Transfer, SHA256: hex.EncodeToString(sum[:])})
					}
				}
				if !expected(err) {
					t.Error("send:", err)
				}
			}
		})
	}
	crowd.Wait()
	b.Uploads.Close()
	for _, name := range []string{"file0", "file1"} {
		if got, err := os.ReadFile(b.in(name)); err == nil && !bytes.Equal(got, content) {
			t.Errorf("%s has %d bytes", name, len(got))
		}
	}
}
