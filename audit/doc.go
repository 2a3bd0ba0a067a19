// Package audit is the tamper-evident record of what a device was asked to do:
// one JSON line a record in <state_dir>/audit.log, each carrying an HMAC over
// itself and over its predecessor's.
//
// # What is promised
//
// A record is in the kernel's hands (one write) when Append returns, so it
// survives the daemon's death, kill -9 included; whoever appends before the
// effect knows that no effect goes unrecorded. It is on the disk at most
// Options.SyncEvery later, or when AppendSync returns. A power cut may lose the
// records of that last moment and never breaks the chain.
//
// What can't be recorded must not happen: an error of Append means that the
// operation is to be refused. The log tries again with the next record, so it
// recovers by itself when a full disk has room again.
//
// # What Verify finds
//
// Changed, reordered and removed records, removed rotated files and, by the
// sealed head (audit.head: sequence number and HMAC of the newest record on the
// disk, with a MAC), a log that was cut at its end. A log that was rolled back
// together with its head looks well by itself; the anchors that our relay keeps
// show it, and Verify takes them.
//
// # Format
//
// Records and HMACs are those of the existing Python shim: HMAC-SHA256 over the
// record without its hmac in canonical JSON (keys sorted, no spaces, the least
// escaping, floats as Python prints them). Different from there, sequence
// numbers and the chain go on over rotated files, whose first record is
// AUDIT_ROTATED.
//
// A Log is safe for concurrent use. It owns one goroutine, which Close ends.
package audit
