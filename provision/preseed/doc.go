// Package preseed reads what a person put on the boot partition of a freshly
// flashed card, and writes it for `farhand flash`: rpi-preseed.toml, which
// Raspberry Pi Imager 2 writes, farhand.toml, which is ours, and firstrun.sh,
// which Imager 1 writes for any image and which is read here, never run.
//
// The parsers take any bytes. What can be applied is in Settings; what became of
// each setting, applied or not and why, is in the report. Secrets are in Settings
// alone, never in a report or an error.
package preseed
