// Package root makes the tree of the image's read-only root file system from
// Debian packages.
//
// Nothing of the image is executed while it is built: packages are unpacked, and
// what their maintainer scripts would do on a running system is done here
// instead, for the packages that are named here: users, the CA bundle, the
// modules' index, alternatives, units. So a build takes seconds instead of
// minutes of emulation, gives the same tree each time, and needs no other
// architecture's code to run. What such a script might have done unnoticed shows
// as a library that a program lacks (Check), or in the boot test.
package root
