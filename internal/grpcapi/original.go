package grpcapi

import (
	"strings"

	"cellserver/internal/envoy"
	"cellserver/internal/metric"
)

// The metrics of envoyproxy/ratelimit, as its exporter for Prometheus names them, in hits.
var (
	originalHits = []struct {
		metric *metric.Metric
		read   func(*envoy.Decisions) int64
	}{
		{originalLimit("total_hits", "Hits of requests."), func(d *envoy.Decisions) int64 { return d.Hits.Load() }},
		{originalLimit("within_limit", "Hits of requests that were not over the limit."),
			func(d *envoy.Decisions) int64 { return d.WithinHits.Load() }},
		{originalLimit("near_limit", "Hits beyond --envoy-near-limit."),
			func(d *envoy.Decisions) int64 { return d.NearHits.Load() }},
		{originalLimit("over_limit", "Hits of requests that were over the limit."),
			func(d *envoy.Decisions) int64 { return d.OverHits.Load() }},
		{originalLimit("shadow_mode", "Hits of requests that were over a limit in shadow mode."),
			func(d *envoy.Decisions) int64 { return d.ShadowHits.Load() }},
	}
	originalRequests = original("total_requests", "Requests.", "grpc_method")
	originalErrors   = original("should_rate_limit_error", "Requests that got an error.", "err_type")
)

func original(name, help string, labels ...string) *metric.Metric {
	m := metric.NewCounter("ratelimit_service_"+name, help, labels...)
	m.IsForeign = true
	return m
}

func originalLimit(name, help string) *metric.Metric {
	return original("rate_limit_"+name, help, "domain", "key1", "key2")
}

// OriginalMetrics returns the metrics of envoyproxy/ratelimit, by its names.
func (s *Server) OriginalMetrics() metric.Group {
	g := metric.Group{Metrics: []*metric.Metric{originalRequests, originalErrors}, Read: func(out *metric.Samples) {
		n := &s.counts
		out.Int(originalRequests, n.ok.Load()+n.over.Load()+n.errors.Load(), "ShouldRateLimit")
		out.Int(originalErrors, n.errors.Load(), "service_error")
		if config := s.config.InForce(); config != nil {
			readOriginal(out, config.Decisions())
		}
	}}
	for _, h := range originalHits {
		g.Metrics = append(g.Metrics, h.metric)
	}
	return g
}

// readOriginal adds the hits of limits, by the first words of their paths. Limits with the same words count together.
func readOriginal(out *metric.Samples, list []*envoy.Decisions) {
	var order [][3]string
	byLabels := map[[3]string][]*envoy.Decisions{}
	for _, d := range list {
		var labels [3]string
		copy(labels[:], strings.Split(strings.NewReplacer(":", "_", "|", "_").Replace(d.Path), "."))
		if byLabels[labels] == nil {
			order = append(order, labels)
		}
		byLabels[labels] = append(byLabels[labels], d)
	}
	for _, labels := range order {
		for _, h := range originalHits {
			sum := int64(0)
			for _, d := range byLabels[labels] {
				sum += h.read(d)
			}
			out.Int(h.metric, sum, labels[:]...)
		}
	}
}
