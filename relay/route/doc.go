// Package route is the live half of the relay: the devices' control and data
// sockets, the operators' socket, and the sessions between them.
//
// A request on its way: the operator's reader decodes the envelope (never the
// body), finds the session and asks the ceilings; the session's lane queues it,
// gives it an id of its own and hands it to the device's socket; the device's
// reader decodes the envelope of the answer, finds the request by that id and
// hands the body to the operator's socket. Two goroutines touch it, the two
// readers; each socket's writer is started when there is something to write and
// ends when there is not, so that an idle socket costs one parked goroutine.
//
// Nothing here waits for a peer while it holds a lock or reads for somebody
// else: every queue is bounded in frames and bytes and says what happens when
// it is full (a lane refuses with SHIM_OVERLOADED, an operator who doesn't read
// gets no new requests issued and in the end is cut off, a device that doesn't
// read is cut off by its writer's deadline).
//
// Durable are the sessions alone (records in Store, keyed by owner first);
// everything else is rebuilt from the sockets after a restart.
package route
