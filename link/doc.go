// Package link is one WebSocket as frames in, frames out: dialling with a
// bearer token or accepting an upgrade, the size caps, the writer with its four
// queues, keepalive and closing in bounded time. It knows nothing of what the
// frames mean but for one rule: a device's socket refuses any frame that the
// granted capabilities don't allow (wire.MayDeviceSend), because the AutoGPT
// platform drops a socket at the first frame that it doesn't expect.
//
// A Conn has one reader at a time (Read) and any number of senders (Send, Post).
// Whoever dialled or accepted it calls Close, which waits for everything that
// the Conn started.
//
// Compression is never negotiated: with permessage-deflate a file transfer
// falls to a tenth of its speed.
package link
