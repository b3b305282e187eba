// Package monitor answers HTTP requests of operators and their tools: the metrics for Prometheus,
// whether the process is alive and ready, and profiles. See docs/metrics.md. The package web serves the
// port; here are its paths.
package monitor

import (
	"log/slog"
	"net/http"
	"slices"
	"time"

	"cellserver/internal/metric"
)

// Config holds the parameters of New.
type Config struct {
	Metrics []metric.Group
	Health  *Health
	Profile http.Handler // of /debug/pprof; nil if it is off
	Page    http.Handler // of all other paths; nil for none
	Log     *slog.Logger // for messages that peers cause

	CertificateExpiry func() time.Time // of the certificate in use; nil without TLS
}

// New returns the handler of the port.
func New(c Config) http.Handler {
	if c.CertificateExpiry != nil {
		c.Metrics = append(slices.Clone(c.Metrics), certificate(c.CertificateExpiry))
	}
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

var certificateExpiry = metric.NewGauge("tls_certificate_expiry_timestamp_seconds",
	"When the certificate in use, or an intermediate one that is sent with it, expires: the first of them.")

// certificate returns the metric of a certificate. After a change of the certificate, it shows the new one.
func certificate(expiry func() time.Time) metric.Group {
	return metric.Group{Metrics: []*metric.Metric{certificateExpiry}, Read: func(out *metric.Samples) {
		out.Int(certificateExpiry, expiry().Unix())
	}}
}
