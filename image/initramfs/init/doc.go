// Command init is the first program of a Farhand image: it finds the card, lets
// the data partition grow to the card's end, mounts the root of the slot that
// the firmware started, makes or repairs the data file system, and hands over to
// the root's own init.
//
// What goes wrong with the data never stops it: then the data directory is in
// memory, and /run/farhand/data-error says why.
package main
