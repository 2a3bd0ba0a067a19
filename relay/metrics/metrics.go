// Package metrics counts what a relay does, for Prometheus. Labels are bounded:
// what peers send is counted under names that this program knows, or as "other".
// No label names an owner, a machine or a token.
package metrics

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"farhand/relay/store"
	"farhand/wire"
)

const prefix = "farhand_relay_"

// Who is at the other end of a socket.
const (
	Device   = "device"
	Operator = "operator"
	Instance = "instance" // another one of the same relay
)

// Metrics are a relay's. The methods are safe for concurrent use, and do nothing on
// a nil one.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	auth     *prometheus.CounterVec
	audit    *prometheus.CounterVec
	store    *prometheus.HistogramVec
	lost     prometheus.Counter
	received map[string]prometheus.Counter
	sent     map[string]prometheus.Counter

	mu    sync.Mutex
	codes map[wire.Code]bool // those that became labels
}

// maxCodes bounds the error codes that become labels: devices choose them.
const maxCodes = 100

// New makes metrics that have counted nothing.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), codes: make(map[wire.Code]bool)}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "requests_total", Help: "Requests of operators that were answered, by type and by the error's code, which is empty for success.",
	}, []string{"type", "code"})
	m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: prefix + "request_duration_seconds", Help: "Time from a request's arrival to its answer.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120},
	}, []string{"type"})
	m.auth = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "auth_failures_total", Help: "Tokens that were not accepted, by who showed them.",
	}, []string{"peer"})
	m.audit = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "audit_events_total", Help: "Records of the relay's audit log, by operation and by whether it was refused.",
	}, []string{"op", "refused"})
	m.store = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: prefix + "store_duration_seconds", Help: "Time that the store takes, by operation.",
		Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5},
	}, []string{"operation"})
	m.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "stream_frames_lost_total", Help: "Frames of streams that were dropped because their operator didn't read.",
	})
	received := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "received_bytes_total", Help: "Bytes of messages that came, by who sent them.",
	}, []string{"peer"})
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "sent_bytes_total", Help: "Bytes of messages that were sent, by who received them.",
	}, []string{"peer"})
	m.received, m.sent = make(map[string]prometheus.Counter), make(map[string]prometheus.Counter)
	for _, peer := range []string{Device, Operator, Instance} {
		m.received[peer], m.sent[peer] = received.WithLabelValues(peer), sent.WithLabelValues(peer)
	}
	for _, peer := range []string{Device, Operator} {
		m.auth.WithLabelValues(peer)
	}
	m.registry.MustRegister(m.requests, m.seconds, m.auth, m.audit, m.store, m.lost, received, sent,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Is has this instance named by a metric that is always 1, beside which the others
// can be read: name is the host's or what its operator calls it, cluster is empty
// for a relay on its own.
func (m *Metrics) Is(name, cluster, version string) {
	if m == nil {
		return
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "info", Help: "Which instance of a relay this is.",
		ConstLabels: prometheus.Labels{"name": name, "cluster": cluster, "version": version},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// Sees has the number of instances that this one sees shown, itself included.
func (m *Metrics) Sees(count func() int) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "instances", Help: "Instances of the cluster that this one sees, itself included; 0 while it is cut off from NATS.",
	}, func() float64 { return float64(count()) }))
}

// Live has what count says shown as gauges: the machines that are online, the
// sessions with a socket, and the operators' sockets.
func (m *Metrics) Live(count func() (machines, sessions, operators int)) {
	if m == nil {
		return
	}
	m.registry.MustRegister(live{count})
}

// live collects what there is at the moment.
type live struct {
	count func() (machines, sessions, operators int)
}

var (
	machinesOnline = prometheus.NewDesc(prefix+"machines_online", "Machines whose control socket is up.", nil, nil)
	sessionsLive   = prometheus.NewDesc(prefix+"sessions_live", "Sessions whose data socket is up.", nil, nil)
	operatorsUp    = prometheus.NewDesc(prefix+"operator_sockets", "Operators' sockets that are up.", nil, nil)
)

func (live) Describe(to chan<- *prometheus.Desc) {
	to <- machinesOnline
	to <- sessionsLive
	to <- operatorsUp
}

func (l live) Collect(to chan<- prometheus.Metric) {
	machines, sessions, operators := l.count()
	to <- prometheus.MustNewConstMetric(machinesOnline, prometheus.GaugeValue, float64(machines))
	to <- prometheus.MustNewConstMetric(sessionsLive, prometheus.GaugeValue, float64(sessions))
	to <- prometheus.MustNewConstMetric(operatorsUp, prometheus.GaugeValue, float64(operators))
}

// Request counts one that was answered, with the code of its error or none.
func (m *Metrics) Request(t wire.Type, code wire.Code, took time.Duration) {
	if m == nil {
		return
	}
	name := string(t)
	if _, known := wire.MethodOf(t); !known {
		name = "other"
	}
	m.requests.WithLabelValues(name, m.label(code)).Inc()
	m.seconds.WithLabelValues(name).Observe(took.Seconds())
}

// label is a code as a label.
func (m *Metrics) label(c wire.Code) string {
	if c == "" {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.codes[c] {
		if len(m.codes) >= maxCodes || !plain(c) {
			return "other"
		}
		m.codes[c] = true
	}
	return string(c)
}

// plain says whether a code looks like one.
func plain(c wire.Code) bool {
	for _, b := range []byte(c) {
		if (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '_' {
			return false
		}
	}
	return len(c) <= 48
}

// AuthFailed counts a token that wasn't accepted.
func (m *Metrics) AuthFailed(peer string) {
	if m != nil {
		m.auth.WithLabelValues(peer).Inc()
	}
}

// Audited counts a record of the audit log. op is one of the program's own.
func (m *Metrics) Audited(op string, refused bool) {
	if m == nil {
		return
	}
	is := "false"
	if refused {
		is = "true"
	}
	m.audit.WithLabelValues(op, is).Inc()
}

// Lost counts a frame of a stream that was dropped.
func (m *Metrics) Lost() {
	if m != nil {
		m.lost.Inc()
	}
}

// Received and Sent count the bytes of a message.
func (m *Metrics) Received(peer string, n int) {
	if m != nil {
		m.received[peer].Add(float64(n))
	}
}

func (m *Metrics) Sent(peer string, n int) {
	if m != nil {
		m.sent[peer].Add(float64(n))
	}
}

// Handler serves GET /metrics.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	return mux
}

// Timed is a store whose operations are timed.
func (m *Metrics) Timed(s store.Store) store.Store {
	if m == nil {
		return s
	}
	return timed{s, m.store}
}

type timed struct {
	store.Store
	seconds *prometheus.HistogramVec
}

// since observes an operation that began then.
func (t timed) since(operation string, begun time.Time) {
	t.seconds.WithLabelValues(operation).Observe(time.Since(begun).Seconds())
}

func (t timed) Get(ctx context.Context, key string) (store.Entry, error) {
	defer t.since("get", time.Now())
	return t.Store.Get(ctx, key)
}

func (t timed) Create(ctx context.Context, key string, value []byte, expires time.Time) (uint64, error) {
	defer t.since("create", time.Now())
	return t.Store.Create(ctx, key, value, expires)
}

func (t timed) Update(ctx context.Context, key string, value []byte, expires time.Time, last uint64) (uint64, error) {
	defer t.since("update", time.Now())
	return t.Store.Update(ctx, key, value, expires, last)
}

func (t timed) Delete(ctx context.Context, key string, last uint64) error {
	defer t.since("delete", time.Now())
	return t.Store.Delete(ctx, key, last)
}

func (t timed) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	defer t.since("list", time.Now())
	return t.Store.List(ctx, prefix)
}

var _ store.Store = timed{}
