// Package shim is the device side of the protocol: the control socket that
// keeps a machine reachable, the data sockets of its sessions, the handshake,
// admission and SHIM_OVERLOADED, STATUS, directory browsing, attaching sessions
// to roots, revocation and every close code. What a request does is none of its
// business: a Table maps message types to handlers, and the daemon fills it.
//
// # A request's way
//
// One goroutine per socket reads. It decodes the envelope, answers PING, obeys
// SESSION_REVOKED and GRANTS_UPDATE, and admits a request or refuses it, in this
// order: too many outstanding (SHIM_OVERLOADED), wrong socket, capability not
// granted, a ceiling of the policy. An admitted request runs in a goroutine of
// its own, after its predecessors of the same lane and once one of the machine's
// slots is free (data sockets only). Its answer leaves on the socket on which it
// came, or not at all.
//
// # What the platform sees
//
// A request's slot is free again at the moment its answer is written, so
// pending_capacity never promises what isn't there, and a peer that doesn't read
// its answers isn't served more than max_concurrent of them. An answer that ends
// a full state is followed by STATUS. The machine-wide bound of Config.MachineWide
// makes requests wait and never shows.
//
// # Handles
//
// SERIAL_OPEN, USB_OPEN, GPIO_CONFIGURE and what follows them are the exception to
// what a request does being none of its business: they are nothing but
// HARDWARE_OP in other words, with a map from handle to lease that has to end
// with the socket. Handles has all of it.
//
// # Handing over
//
// The AutoGPT platform closes a socket with 4401 when its token expires, and a
// second socket for the same machine or session evicts the first as if it were a
// hostile takeover. So sockets never overlap: at 4401 the token is renewed and
// the socket opened again at once, and shortly before that moment, when nothing
// is in flight and a newer token is at hand, we do so ourselves with close 1000.
// A revocation that arrives on a socket is therefore always meant for it.
package shim
