package openai

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/octet-run/octet/coordinator"
)

// stateMetric is a number of the coordinator's Stats, under our name and the names
// that dashboards of vLLM and SGLang look for.
type stateMetric struct {
	kind  prometheus.ValueType
	help  string
	names []string
	value func(s *coordinator.Stats, limits *coordinator.Config) float64
}

var stateMetrics = []stateMetric{
	{
		prometheus.GaugeValue, "1 when requests are taken and rounds make progress.",
		[]string{"octet_ready"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 {
			if s.Ready {
				return 1
			}
			return 0
		},
	},
	{
		prometheus.GaugeValue, "Generation of the group, one more at every re-formation.",
		[]string{"octet_epoch"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Epoch) },
	},
	{
		prometheus.GaugeValue, "How long the round under way has been running.",
		[]string{"octet_round_running_seconds"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return s.Round.Seconds() },
	},
	{
		prometheus.GaugeValue, "Requests that run.",
		[]string{"octet_requests_running", "vllm:num_requests_running", "sglang:num_running_reqs"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Running) },
	},
	{
		prometheus.GaugeValue, "Requests that wait.",
		[]string{"octet_requests_waiting", "vllm:num_requests_waiting", "sglang:num_queue_reqs"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Waiting) },
	},
	{
		prometheus.GaugeValue, "KV blocks of the group.",
		[]string{"octet_kv_blocks"},
		func(_ *coordinator.Stats, limits *coordinator.Config) float64 { return float64(limits.Blocks) },
	},
	{
		prometheus.GaugeValue, "KV blocks that no request has reserved.",
		[]string{"octet_kv_free_blocks"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.FreeBlocks) },
	},
	{
		prometheus.GaugeValue, "Share of the KV blocks in use.",
		[]string{"octet_kv_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"},
		func(s *coordinator.Stats, limits *coordinator.Config) float64 {
			return 1 - float64(s.FreeBlocks)/float64(limits.Blocks)
		},
	},
	{
		prometheus.GaugeValue, "Tokens generated per second, over the last seconds.",
		[]string{"octet_tokens_per_second", "sglang:gen_throughput"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return s.TokensPerSecond },
	},
	{
		prometheus.GaugeValue, "Tokens of a decode round of one sequence, on average since the start.",
		[]string{"octet_mean_acceptance_length", "sglang:spec_accept_length"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return s.MeanAcceptanceLength() },
	},
	{
		prometheus.CounterValue, "Prompt tokens run, those run again after the group broke included.",
		[]string{"octet_prompt_tokens_total", "vllm:prompt_tokens_total", "sglang:prompt_tokens_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.PromptTokens) },
	},
	{
		prometheus.CounterValue, "Tokens generated.",
		[]string{"octet_generated_tokens_total", "vllm:generation_tokens_total", "sglang:generation_tokens_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.GeneratedTokens) },
	},
	{
		prometheus.CounterValue, "Rounds of the group.",
		[]string{"octet_rounds_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Rounds) },
	},
	{
		prometheus.CounterValue, "Decode rounds, each sequence counted.",
		[]string{"octet_sequence_rounds_total", "vllm:spec_decode_num_drafts_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.SequenceRounds) },
	},
	{
		prometheus.CounterValue, "Tokens drafted.",
		[]string{"octet_drafted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Drafted) },
	},
	{
		prometheus.CounterValue, "Drafted tokens that were accepted.",
		[]string{"octet_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Accepted) },
	},
	{
		prometheus.CounterValue, "Times a request was started over because the group broke.",
		[]string{"octet_replays_total"},
		func(s *coordinator.Stats, _ *coordinator.Config) float64 { return float64(s.Replays) },
	},
}

// stateCollector reads the coordinator's Stats at each scrape.
type stateCollector struct {
	coordinator *coordinator.Coordinator
	limits      coordinator.Config
	descs       [][]*prometheus.Desc // parallel to stateMetrics
}

func newStateCollector(c *coordinator.Coordinator, model string) *stateCollector {
	s := &stateCollector{coordinator: c, limits: c.Config()}
	for _, metric := range stateMetrics {
		var descs []*prometheus.Desc
		for _, name := range metric.names {
			descs = append(descs, prometheus.NewDesc(name, metric.help, nil, prometheus.Labels{"model_name": model}))
		}
		s.descs = append(s.descs, descs)
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, descs := range s.descs {
		for _, desc := range descs {
			out <- desc
		}
	}
}

// Collect implements prometheus.Collector.
func (s *stateCollector) Collect(out chan<- prometheus.Metric) {
	stats := s.coordinator.Stats()
	for i, metric := range stateMetrics {
		value := metric.value(&stats, &s.limits)
		for _, desc := range s.descs[i] {
			out <- prometheus.MustNewConstMetric(desc, metric.kind, value)
		}
	}
}
