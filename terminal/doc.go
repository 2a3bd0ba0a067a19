// Package terminal keeps programs that outlive the connection from which they were
// started: on a pseudo-terminal, or on pipes. What they write stays in a ring,
// which any number of viewers read at their own pace and find again after a lost
// link; what is typed is applied once, however often it is sent; and how a program
// ended is known for a while longer.
//
// Programs come to life through a function that the caller gives, under whatever
// policy holds for commands. Where a service manager keeps descriptors and the
// program isn't a child of this process, a terminal outlives the process, too.
package terminal
