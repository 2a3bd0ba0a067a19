// Package mcp serves a relay's machines to agents by the Model Context Protocol:
// tools for files, commands, everything wired to a machine and its local model,
// and resources for devices and files. It is written on client, as the farhand
// command is, and can do what its token can do, nothing else.
//
// A Server stands for one token. What the owner granted decides which tools
// there are: a family that is granted on no machine has none, and when that
// changes, clients are told (tools/list_changed). On a machine where a tool's
// family isn't granted the tool fails, and says who can allow it.
//
// # Tools
//
// Every tool is one call of define: its name, what it does, what it changes, the
// capability that it needs, its input and output as Go types, and the function.
// JSON schemas are made of the types (see schemaOf): the units, ranges and
// defaults that stand in them are checked before the function runs. A failure is
// a result with isError, whose text has the code and what to do next; it is never
// an error of the protocol, which agents don't get to see.
//
// # Cancellation and progress
//
// A request that is cancelled ends on the device as well, as far as that can
// interrupt it. Calls that take longer tell their progress to clients that gave a
// progress token: what is known of it, otherwise the seconds that went by.
package mcp
