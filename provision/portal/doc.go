// Package portal is the page of the rescue network: a person who has joined it
// with a phone chooses another network there, enters its password and the
// country, and nothing else.
//
// What makes a phone show the page by itself is that every name leads to it (a
// DNS responder) and every address that a phone looks for to find out whether
// there is an internet is redirected to it.
//
// Anybody who knows the rescue network's passphrase is at the machine or was
// told by somebody who is, so there is no login. What the page guards against is
// another page in the visitor's browser: it answers only under its own address,
// a form is good once, for the visitor that it was made for, and no content from
// elsewhere is permitted. It needs no JavaScript.
package portal
