package client

import "time"

// TendStreams sets how often the streams of c are tended, and after which
// silence they are attached again. It is to be called before the first.
func TendStreams(c *Client, every, silent time.Duration) {
	c.sock.streams.tick, c.sock.streams.silent = every, silent
}
