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

	// Certificates returns when certificates expire, by CertificateUses; nil if none is used.
	Certificates func() map[string]time.Time
}

// New returns the handler of the port.
func New(c Config) http.Handler {
	if c.Certificates != nil {
		c.Metrics = append(slices.Clone(c.Metrics), certificates(c.Certificates))
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
	"When certificates expire, by the option that names their file: the first of those in it.", "use")

// CertificateUses are the options with certificates, which are the values of the label: there are no others.
var CertificateUses = []string{"tls-cert-file", "tls-ca-cert-file", "tls-ca-cert-dir",
	"store-tls-cert-file", "store-tls-ca-cert-file", "envoy-xds-tls-cert-file", "envoy-xds-tls-ca-cert-file"}

// certificates returns the metric of the certificates that are used. After a change of a file, it shows the new one.
func certificates(expiries func() map[string]time.Time) metric.Group {
	return metric.Group{Metrics: []*metric.Metric{certificateExpiry}, Read: func(out *metric.Samples) {
		ends := expiries()
		for _, use := range CertificateUses {
			if end, is := ends[use]; is {
				out.Int(certificateExpiry, end.Unix(), use)
			}
		}
	}}
}
