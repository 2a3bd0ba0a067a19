package xz

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The stream's flags: no version yet, CRC64 over the content (section 2.1.1.2).
var flags = [2]byte{0, 4}

func streamHeader() []byte {
	b := append([]byte{0xfd, '7', 'z', 'X', 'Z', 0}, flags[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(flags[:]))
}

// blockHeader names LZMA2 as the only filter, with its dictionary (section 3.1).
func blockHeader(dict byte) []byte {
	b := []byte{2, 0, 0x21, 1, dict, 0, 0, 0} // 2: 12 bytes with the checksum
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// dictByte is the smallest size that LZMA2 can name and that holds n.
func dictByte(n int64) (byte, int64, error) {
	for b := range byte(40) {
		if size := (2 | int64(b&1)) << (b/2 + 11); size >= n {
			if size > MaxDict {
				break
			}
			return b, size, nil
		}
	}
	return 0, 0, fmt.Errorf("a copy lies %d bytes behind what it copies, more than the %d of the longest dictionary: make the partitions smaller", n, int64(MaxDict))
}

// trailer is the index with its one record, and the footer. unpadded is the
// block's size with header and check.
func trailer(unpadded, content int64) []byte {
	index := []byte{0, 1}
	index = binary.AppendUvarint(index, uint64(unpadded))
	index = binary.AppendUvarint(index, uint64(content))
	for len(index)%4 != 0 {
		index = append(index, 0)
	}
	index = binary.LittleEndian.AppendUint32(index, crc32.ChecksumIEEE(index))
	foot := binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1))
	foot = append(foot, flags[:]...)
	out := binary.LittleEndian.AppendUint32(index, crc32.ChecksumIEEE(foot))
	out = append(out, foot...)
	return append(out, 'Y', 'Z')
}
