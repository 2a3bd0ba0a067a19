// Package client is the operator's side of a Farhand relay: what the farhand
// command and the MCP server are written on.
//
// A Client stands for one relay and one operator token. Management (sign in,
// machines, approvals, claims, tokens, sessions) is JSON over HTTPS. Requests to
// a device go through one WebSocket that all sessions of a Client share: it is
// dialled with the first request, dialled again when it was lost, and requests
// on it are told apart by their ids, so any number may be under way at once.
//
// A Session is a place on a machine: one root, in which commands run and paths
// are looked up. Sessions belong to the token and are reused by the relay, so
// opening one that exists is cheap and closing it is the owner's decision, not
// part of cleaning up.
//
// # Streams
//
// What a device tells as it happens (edges of a line, bytes of a port, devices
// that come and go) is a Stream. It is received from the answer to the request
// that opened it, and goes on over lost links; what was lost meanwhile is told.
//
// # Files
//
// Stat, List, Read and Write are single requests. Put, Source, PutLocal and CopyTree
// copy files of any size and trees, between this machine and others in any
// direction, and go on after whatever ended them:
//
//	src, err := client.LocalSource("model.gguf")
//	sent, err := s.Put(ctx, "models/model.gguf", src, client.PutOptions{CreateParents: true})
//
//	src, err := s.Source(ctx, "log.txt", 0)
//	sent, err := client.PutLocal(ctx, dir, "log.txt", src, client.PutOptions{})
//
// # Errors
//
// Whatever the device or the relay answered is a *wire.Error, so errors.Is(err,
// wire.PathNotFound) holds and errors.As gives the details. The codes that arise
// on this side are RelayUnreachable, RelayUntrusted and wire.OpUnconfirmed: the
// last one says that the link was lost after the request had left, so that the
// operation may have happened. A request that is safe to repeat is repeated
// instead. An error of the context comes back as it is, and the device ends the
// request as far as it can be interrupted.
//
// # Trust
//
// A relay is reached by https, with the roots of the system or, where a pin is
// given, with exactly the one certificate whose DER has that SHA-256 as root; the
// name of the host is checked either way. Plain http is taken for loopback
// addresses only, where it can't leave the machine.
//
// All exported types are safe for concurrent use unless they say otherwise.
package client
