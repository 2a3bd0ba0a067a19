// Package forward makes TCP connections from this machine on behalf of operators:
// to targets that the machine's configuration names (Allow), and no others. Each
// connection is a stream of what comes from its target; what goes there comes in
// requests with offsets, so that a lost link repeats nothing. Connections know
// nothing of each other: one that is stuck holds up its own two ends alone.
package forward
