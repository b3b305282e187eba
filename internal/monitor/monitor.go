// Package monitor answers HTTP requests of operators and their tools: the metrics for Prometheus,
// whether the process is alive and ready, and profiles. See docs/metrics.md. The package web serves the
// port; here are its paths.
package monitor

import (
	"log/slog"
	"net/http"

	"cellserver/internal/metric"
)

// Config holds the parameters of New.
type Config struct {
	Metrics []metric.Group
	Health  *Health
	Profile http.Handler // of /debug/pprof; nil if it is off
	Page    http.Handler // of all other paths; nil for none
	Log     *slog.Logger // for messages that peers cause
}

// New returns the handler of the port.
func New(c Config) http.Handler {
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", metricsHandler(c.Metrics, c.Log))
	paths.HandleFunc("GET /healthz", alive)
	paths.HandleFunc("GET /readyz", c.Health.ready)
	if c.Profile != nil {
		paths.Handle("/debug/pprof/", c.Profile)
	}
	if c.Page != nil {
		paths.Handle("/", c.Page)
	}
	return paths
}
