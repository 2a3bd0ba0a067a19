// Package rescue decides when the appliance offers a Wi-Fi network of its own,
// on whose page a person with a phone can give it another one: after two minutes
// without the relay and without any network, before the first pairing or where
// the owner permitted it for good, and not a moment longer than until a network
// works.
//
// It holds no radio and no page: those are a Radio (package iwd) and a Portal
// (package portal). Machine runs one goroutine that uses both, one call at a
// time.
package rescue
