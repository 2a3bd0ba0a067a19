// Package elfarch tells which processors a program was made for, by the first
// bytes of its file (elf(5)).
package elfarch

import "encoding/binary"

// HeaderLen is how many of a file's first bytes Of looks at.
const HeaderLen = 20

// Of is the architecture of a 64-bit program as Go calls it: amd64 or arm64;
// empty for anything else.
func Of(header []byte) string {
	const elf64little = "\x7fELF\x02\x01"
	if len(header) < HeaderLen || string(header[:len(elf64little)]) != elf64little {
		return ""
	}
	switch binary.LittleEndian.Uint16(header[18:]) {
	case 62: // EM_X86_64
		return "amd64"
	case 183: // EM_AARCH64
		return "arm64"
	}
	return ""
}
