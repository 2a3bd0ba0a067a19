// Package request is the language between the daemon, which has no rights, and
// the appliance's root helper, which owns the screen, the boot partition and the
// rescue network: a closed list of typed requests, none of which carries a path
// or a command.
//
// On the socket a request is one line of JSON, {"request": NAME, "args": {...}},
// and so is its answer: {"ok": true, "facts": {...}} (facts only where asked
// for) or {"code": CODE, "message": TEXT}. A line has at most MaxLine bytes. A
// connection may carry several requests, each answered before the next is read.
// One request is about a file: its descriptor is passed with the line's first byte.
// Unknown names and unknown fields are refused: both ends are one program.
package request
