// Package provision is the appliance's part that needs root: at boot it reads
// what its owner put on the card, once, and has the system go by it; afterwards
// it answers the daemon's requests for what the daemon may not do itself (package
// request), and shows how things are (package front).
//
// What was read stands in one file on the data partition, secrets included,
// where root alone can read it. Every other file is rendered from it at each
// boot, into memory (package render). A power cut at any moment of the first
// boot is resumed by the next one: first the settings are stored, then they are
// removed from the card, and that they are is stored last.
package provision
