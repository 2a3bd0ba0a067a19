// Package firmware emulates the choice that a Raspberry Pi's firmware makes
// before Linux runs: which partition it boots from, and what it takes there. It
// follows Raspberry Pi's documentation of autoboot.txt and config.txt as far as
// images of ours use them; what it doesn't know it refuses, so that an image
// can't lean on something that is not emulated.
//
// It can show that an image's own files fit together. It can't show that the
// real firmware agrees.
package firmware
