// Package soak is one test, for the kernel lab: a device is plugged in and
// pulled out a thousand times (make lab-soak; a hundred in make lab) while four
// sessions use it, and nothing may be left of it afterwards.
package soak
