// Package relay puts the platform side together: the store, the authority
// (relay/oauth), the router of live sockets (relay/route), the audit log, TLS
// and the HTTP server that carries them.
//
// Everything it keeps lies in one data directory, which one relay at a time may
// use: relay.db (the store), audit.log with audit.key and audit.head (who did
// what, hash-chained), acts/ (a log like it for each owner, see relay/acts), tls/
// (what Init made) and, while it runs, admin.sock, by which the host's own
// administrator adds owners.
//
// With Config.Cluster it is one instance of several: the store lies in NATS
// JetStream (relay/store/natskv), and the instances reach each other over NATS
// (relay/cluster). What is said above of the rest holds for each of them.
package relay
