// Package xz compresses the image of a card into one xz stream of one block.
//
// The second slot of a card is the same as the first, some hundred megabytes
// later. An encoder that would find that by itself keeps all of it in memory and
// is slow; so this one is told. LZMA2 is a sequence of chunks of at most 2 MiB,
// and each may begin with fresh models without forgetting what came before. The
// chunks of what is new are the xz program's, several segments at a time; those
// of a copy and of a hole are written here: one match, repeated. A decoder needs
// a dictionary that reaches from a copy back to what it copies, no more.
//
// Formats: "The .xz File Format" 1.2.1; LZMA2's chunks as in xz-embedded
// (xz_dec_lzma2.c).
package xz

// MaxDict is the longest dictionary that is asked of a decoder: one with a limit
// of 1 GiB takes it.
const MaxDict = 512 << 20
