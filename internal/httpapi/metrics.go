package httpapi

import (
	"sync/atomic"

	"cellserver/internal/metric"
)

var (
	requestsTotal  = metric.NewCounter("http_requests_total", "Requests to the ports of --http-port, by their path.", "path")
	untrustedTotal = metric.NewCounter("http_untrusted_total",
		"Requests to /v1/auth that were refused because their peer is no trusted proxy, or may be a web page.")
)

// counts are the numbers of requests.
type counts struct{ calls, takes, auths, others, untrusted atomic.Int64 }

// Metrics returns the metrics of the API.
func (a *API) Metrics() metric.Group {
	return metric.Group{
		Metrics: []*metric.Metric{requestsTotal, untrustedTotal},
		Read: func(out *metric.Samples) {
			n := &a.counts
			out.Int(requestsTotal, n.calls.Load(), "/v1")
			out.Int(requestsTotal, n.takes.Load(), "/v1/take")
			out.Int(requestsTotal, n.auths.Load(), "/v1/auth")
			out.Int(requestsTotal, n.others.Load(), "other")
			out.Int(untrustedTotal, n.untrusted.Load())
		},
	}
}
