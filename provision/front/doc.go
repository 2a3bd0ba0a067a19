// Package front is what the appliance shows to whoever stands beside it: the
// screen, and the rescue network with its page. It puts packages screen, rescue
// and portal together and is told by the daemon's requests how things are.
package front
