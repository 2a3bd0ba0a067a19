// Package files is the file service of one directory: the seven FILE_*
// operations of protocol 1.1 and the extension for files in pieces, none of which can reach, change or reveal anything
// outside that directory.
//
// # The jail
//
// A Root holds a descriptor of its directory. A path is resolved one component
// at a time relative to that descriptor, each directory opened without following
// links (O_NOFOLLOW); a link is read and its target walked in turn, at most
// [MaxLinks] of them. ".." never asks the kernel: it cuts the canonical path and
// walks again from the root, so a directory that is moved meanwhile leads
// nowhere. What leaves the root and comes back (an absolute link, "../work/x",
// a request by another name of the root) is followed by name only until it
// stands on the root's own inode, and goes on from the root's descriptor. So
// whatever is swapped at whatever moment, every object is reached by a chain of
// descriptors that starts at the root.
//
// Two limits are those of the kernel: a directory that somebody else moves out
// of the root while an operation stands in it stays the one operated on, and a
// hard link to a file is that file.
//
// # What files can never reach
//
// A Forbidden names what no root opens up: the daemon's state, its
// configuration, the boot partition, /proc, /sys, /dev and /run. It is compared
// by device and inode at each step, by directory and name for what is replaced
// by a new inode (a configuration file that is edited), and by file system type
// where a mount is crossed.
//
// # Writing
//
// A write is a new inode beside the old one, synced and renamed over it: a
// reader, a crash and a full disk see the old content or the new, never a
// mixture. Mode, owner, group, extended attributes and access list go over to the
// new inode. Where they can't, or where a new inode would break something (hard
// links, a directory without write permission, a bind-mounted file), the file is
// written in place: an error on the way puts the old bytes back, but a process
// killed in the middle leaves a mixture.
//
// # Files in pieces
//
// Uploads take files that arrive in pieces: what has come lies beside the
// destination under a name of ours, and takes its place by the same rename as a
// write, always as a new inode. It is the one thing that is left when a daemon is
// killed, on purpose: the upload goes on with it. Piece, Entries and Make are what
// fetching files and copying trees need beside it.
//
// # Names
//
// Names on disk are bytes, names on the wire are Unicode. A byte that isn't UTF-8
// is shown as U+FFFD, and a name asked for with U+FFFD in it finds the one entry
// that is shown that way.
//
// All operations of a Root may run at the same time; Close waits for them. It
// needs Linux, nothing newer than renameat2 (3.15); elsewhere Open fails with
// FEATURE_NOT_SUPPORTED.
package files
