// Package schema tells how the content of a file is built without telling any of
// it: kinds, types and counts. It is what somebody gets to see who may not read
// the file.
//
// What it answers is made of words of its own and of counts. Two files that differ
// in their values alone have the same preview: same types, same lengths of lines,
// same answer, byte for byte. There is no smallest and largest value, no length of
// a string (but that of the longest line of a text), no sample, no text of an
// error of a parser; what stands between the cells of a table is told by its name.
// With Options.Named there are names beside: an owner says of a file that the keys
// of its objects and the header of its table may be known.
//
// It reads at most [MaxScan] bytes, at most twice, in pieces, and needs less than
// 1 MiB however the file is built: strings and numbers are looked at a byte at a
// time, what goes deeper than [maxDepth] or wider than [maxMembers] is counted and
// not kept. A JSON document is one only if all of it is; a comma too many makes it
// text.
package schema
