package grpcapi

import (
	"sync/atomic"

	"cellserver/internal/metric"
)

var (
	requestsTotal = metric.NewCounter("envoy_requests_total",
		"Requests of Envoy's rate limit service, by their answer: ok, over_limit, error.", "answer")
	decisionsTotal = metric.NewCounter("envoy_decisions_total",
		"Decisions about descriptors of Envoys, by domain, path in the configuration, and result: ok, over_limit. Beyond 1000 limits, the domain and the path are empty.",
		"domain", "descriptor", "result")
	configFailing = metric.NewGauge("envoy_config_failing",
		"1 while the newest configuration of --envoy-config or --envoy-xds is refused, and an earlier one is in force.")
	connectionsTotal = metric.NewCounter("envoy_refused_connections_total",
		"Connections to --grpc-port that were closed: of a peer that is not trusted, without a place, without memory.", "reason")
)

// counts are the numbers of requests, and of connections that were closed.
type counts struct{ ok, over, errors, untrusted, refused, cut atomic.Int64 }

// Metrics returns the metrics of the server.
func (s *Server) Metrics() metric.Group {
	return metric.Group{
		Metrics: []*metric.Metric{requestsTotal, decisionsTotal, configFailing, connectionsTotal},
		Read: func(out *metric.Samples) {
			n := &s.counts
			out.Int(requestsTotal, n.ok.Load(), "ok")
			out.Int(requestsTotal, n.over.Load(), "over_limit")
			out.Int(requestsTotal, n.errors.Load(), "error")
			if config := s.config.InForce(); config != nil {
				for _, d := range config.Decisions() {
					out.Int(decisionsTotal, d.Allowed.Load(), d.Domain, d.Path, "ok")
					out.Int(decisionsTotal, d.Over.Load(), d.Domain, d.Path, "over_limit")
				}
			}
			out.Bool(configFailing, s.config.IsFailing != nil && s.config.IsFailing())
			out.Int(connectionsTotal, n.untrusted.Load(), "untrusted")
			out.Int(connectionsTotal, n.refused.Load(), "places")
			out.Int(connectionsTotal, n.cut.Load(), "memory")
		},
	}
}
