package client

import (
	"context"
	"time"

	"farhand/wire"
)

// Top asks how the machine is doing: load, memory, temperature, supply, disks. It
// needs the capability observe, as do WatchTop and Logs.
func (s *Session) Top(ctx context.Context) (wire.Top, error) {
	var out wire.TopResponse
	err := s.do(ctx, request{method: method(wire.TTopRequest), payload: wire.TopRequest{}}, &out)
	return out.Top, err
}

// WatchTop asks it now and again after each interval (wire.MinTopInterval to
// wire.MaxTopInterval seconds): the stream brings wire.Tops.
func (s *Session) WatchTop(ctx context.Context, interval time.Duration) (*Stream, wire.Top, error) {
	var out wire.TopResponse
	r := request{method: method(wire.TTopRequest), payload: wire.TopRequest{Interval: interval.Seconds()}}
	st, err := open(ctx, s.client.sock, s.do, s.at, r, &out, func(payload []byte) (string, int64, int) {
		var answer wire.TopResponse
		_ = wire.Decode(payload, &answer)
		return answer.Stream, 0, 0
	})
	return st, out.Top, err
}

// Logs reads the machine's journal: the stream brings wire.LogRecords, the oldest
// first and none left out, and ends with reason done unless the request follows.
func (s *Session) Logs(ctx context.Context, in wire.LogsRequest) (*Stream, error) {
	var out wire.LogsResponse
	r := request{method: method(wire.TLogsRequest), payload: in}
	return open(ctx, s.client.sock, s.do, s.at, r, &out, func(payload []byte) (string, int64, int) {
		var answer wire.LogsResponse
		_ = wire.Decode(payload, &answer)
		return answer.Stream, 0, in.Credit
	})
}
