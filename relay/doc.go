// Package relay puts the platform side together: the store, the authority
// (relay/oauth), the router of live sockets (relay/route), the audit log, TLS
// and the HTTP server that carries them.
//
// Everything it keeps lies in one data directory, which one relay at a time may
// use: relay.db (the store), audit.log with audit.key and audit.head (who did
// what, hash-chained), tls/ (what Init made) and, while it runs, admin.sock, by
// which the host's own administrator adds owners.
package relay
