package openai

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/octet-run/octet/coordinator"
)

// Metrics observes a coordinator and answers /metrics from a registry of its own.
// Give it to the coordinator's Config as Observer.
type Metrics struct {
	registry *prometheus.Registry
	model    string

	requests    *prometheus.CounterVec
	successes   *prometheus.CounterVec
	latency     histograms
	firstToken  histograms
	perToken    histograms
	roundTime   prometheus.Histogram
	acceptance  prometheus.Histogram
	phases      *prometheus.CounterVec
	prefillRows prometheus.Counter
	verifyRows  prometheus.Counter
}

var _ coordinator.Observer = (*Metrics)(nil)

// Buckets in seconds: requests, and things as short as a round.
var (
	requestBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320}
	roundBuckets   = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5}
)

// NewMetrics makes the metrics of a model. Collectors of the caller's, for what it
// knows of ranks and restarts, are answered along with them.
func NewMetrics(model string, more ...prometheus.Collector) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), model: model}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(more...)

	m.requests = m.counterVec("octet_requests_total", "Requests that ended, by reason.", "reason")
	m.successes = m.counterVec("vllm:request_success_total", "Requests that came to their own end, by reason.", "finished_reason")
	m.latency = m.histograms(requestBuckets, "Time of a request from submission to its end.",
		"octet_request_seconds", "vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds")
	m.firstToken = m.histograms(requestBuckets, "Time from submission to the first token.",
		"octet_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")
	m.perToken = m.histograms(roundBuckets, "Decode time of a request per token after its first.",
		"octet_time_per_output_token_seconds", "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds", "sglang:inter_token_latency_seconds")
	m.roundTime = m.histogram("octet_round_seconds", "Time of a round on the coordinator's clock.", roundBuckets)
	m.acceptance = m.histogram("octet_acceptance_length", "Tokens of a decode round of one sequence, averaged over the round's batch.",
		[]float64{1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 12, 16})
	m.phases = m.counterVec("octet_round_phase_seconds_total", "Time of rounds on rank 0, by what it went to.", "phase")
	m.prefillRows = m.counter("octet_prefill_rows_total", "Rows of prompts run.")
	m.verifyRows = m.counter("octet_verify_rows_total", "Rows of verify passes run.")
	return m
}

// RoundDone implements coordinator.Observer.
func (m *Metrics) RoundDone(r coordinator.RoundReport) {
	m.roundTime.Observe(r.Elapsed.Seconds())
	m.prefillRows.Add(float64(r.PrefillRows))
	m.verifyRows.Add(float64(r.VerifyRows))
	if r.Sequences > 0 {
		m.acceptance.Observe(1 + float64(r.Accepted)/float64(r.Sequences))
	}
	for phase, nanoseconds := range map[string]int64{
		"draft": r.Timings.Draft, "compute": r.Timings.Compute, "transfer": r.Timings.Transfer, "skew": r.Timings.Skew, "launch": r.Timings.Launch,
	} {
		m.phases.WithLabelValues(phase).Add(time.Duration(max(nanoseconds, 0)).Seconds())
	}
}

// RequestDone implements coordinator.Observer.
func (m *Metrics) RequestDone(_ *coordinator.Request, f *coordinator.Finish) {
	m.requests.WithLabelValues(f.Reason.String()).Inc()
	if f.Reason == coordinator.FinishStop || f.Reason == coordinator.FinishLength {
		m.successes.WithLabelValues(f.Reason.String()).Inc()
	}
	m.latency.observe(f.Timings.Queued + f.Timings.Prefill + f.Timings.Decode)
	if f.Timings.FirstToken > 0 {
		m.firstToken.observe(f.Timings.FirstToken)
	}
	if f.GeneratedTokens > 1 {
		m.perToken.observe(f.Timings.Decode / time.Duration(f.GeneratedTokens-1))
	}
}

// handler answers with these metrics and the coordinator's present state.
func (m *Metrics) handler(c *coordinator.Coordinator) http.Handler {
	state := prometheus.NewRegistry()
	state.MustRegister(newStateCollector(c, m.model))
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, state}, promhttp.HandlerOpts{})
}

// histograms are one measurement under several names.
type histograms []prometheus.Histogram

func (h histograms) observe(d time.Duration) {
	for _, histogram := range h {
		histogram.Observe(d.Seconds())
	}
}

func (m *Metrics) labels() prometheus.Labels { return prometheus.Labels{"model_name": m.model} }

func (m *Metrics) histograms(buckets []float64, help string, names ...string) histograms {
	var list histograms
	for _, name := range names {
		list = append(list, m.histogram(name, help, buckets))
	}
	return list
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: m.labels()})
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.labels()})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counterVec(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.labels()}, []string{label})
	m.registry.MustRegister(c)
	return c
}
