// Package wire is what crosses a socket: the envelope, every payload of
// protocol 1.1 and of Farhand's extensions, the error codes, the capabilities
// and the limits. It imports nothing but the standard library and has no policy:
// the table in methods.go says which frame answers which, who may send it on
// which channel and which capability it needs, and everybody else asks it.
//
// Small payloads are ordinary structs for encoding/json. The few that carry
// bulk data (FILE_CONTENTS, FILE_WRITE, COMMAND_RESULT) have a path of their
// own, because generic decoding of a 10 MiB string is some ten times slower
// than finding its end and decoding it in place.
//
// All types are values without hidden state and safe for concurrent reading.
package wire
