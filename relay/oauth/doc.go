// Package oauth is the relay's authority: who somebody is and what they may do.
// It holds the owners' accounts, signs devices in (RFC 8628 device
// authorisation, authorisation code with PKCE, claim keys), rotates their
// tokens, keeps operator logins and tokens with their ceilings, remembers the
// machines with what their owner approved, and serves the pages and the JSON
// API for all of it. It implements access.Authority for the relay's router.
//
// # State
//
// Everything is one record per thing in a store.Store, keyed by its owner
// first, and every rule holds within one record, changed by compare-and-swap:
//
//	o.<owner>.family.<id>    one device's tokens: the newest pair and the one before
//	o.<owner>.machine.<id>   a machine: name, board, approval
//	o.<owner>.seen.<id>      its last HELLO;  o.<owner>.anchor.<id> its audit head
//	o.<owner>.name.<name>    which machine has the name
//	o.<owner>.login.<id>     a login;  token.<id> an operator token;  page.<id> a browser's login
//	o.<owner>.claim.<id>     a claim key;  code.<id> an authorisation code
//	account.<name>           an account
//	pending.<mac>            a device that waits for approval (it has no owner yet)
//	setup.<id>               a one-time setup token;  relay.key the relay's own secret
//
// What is redeemed for tokens (a device code, an authorisation code, a claim
// key) names the family that it becomes, so that creating the family's record is
// both the claim and the issue.
//
// # Tokens
//
// A token is a prefix and base64url of the owner's id, the record's id and 256
// random bits; only its SHA-256 is kept. A refresh token carries two things
// more: a secret that all refresh tokens of its family share, by which a token
// of any age is recognised as once issued, and its generation.
//
// # Rotation
//
// Each refresh gives a new pair. The refresh token before stays redeemable until
// its successor pair has been used once (its access token introspected or its
// refresh token redeemed), each redemption replacing the unused successor, so a
// lost answer locks nobody out. A refresh token older than that revokes the
// family and ends that family's sockets, no others. So does a replaced successor
// once another was used: then two parties hold the family.
package oauth
