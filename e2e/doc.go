// Package e2e holds the tests of the whole: the relay, the daemon and the
// operator's command as the programs that ship, each a process of its own, over
// real sockets and a real disk.
//
// FARHAND_TEST_BIN names the folder with the programs; without it they are built
// once for the run. FARHAND_TEST_KILLS sets how often TestKill kills, and
// FARHAND_TEST_SEED when. Nothing is needed but Linux, sh and coreutils.
package e2e
