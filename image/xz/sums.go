package xz

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"
)

type sums struct {
	check []byte // CRC64 as the block has it, little-endian (section 3.4)
	image [32]byte
	err   error
}

// startSums sums the image up beside its compression.
func startSums(ctx context.Context, image io.ReaderAt, size int64) <-chan sums {
	done := make(chan sums, 1)
	go func() {
		table := crc64.MakeTable(crc64.ECMA)
		whole := sha256.New()
		crc := uint64(0)
		block := make([]byte, 1<<20)
		for at := int64(0); at < size; {
			n, err := image.ReadAt(block[:min(int64(len(block)), size-at)], at)
			if n == 0 || ctx.Err() != nil {
				if err == nil {
					err = ctx.Err()
				}
				done <- sums{err: fmt.Errorf("image at %d: %w", at, err)}
				return
			}
			crc = crc64.Update(crc, table, block[:n])
			whole.Write(block[:n])
			at += int64(n)
		}
		done <- sums{check: binary.LittleEndian.AppendUint64(nil, crc), image: [32]byte(whole.Sum(nil))}
	}()
	return done
}
