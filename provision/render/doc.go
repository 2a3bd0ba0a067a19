// Package render turns what a card asked for into the files that the system goes
// by, all of them in memory file systems: they are made anew at every boot, and
// nothing on the read-only root differs from card to card. Where programs look
// in /etc, the image has links to them or includes of them.
package render
