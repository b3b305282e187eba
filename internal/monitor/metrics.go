package monitor

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"cellserver/internal/metric"
)

// namespace is the first word of the names of all metrics, except for metrics of Go and of the process.
const namespace = "cellserver"

// maxScrapes bounds the scrapes that are answered at once, because each takes about a millisecond, and
// locks of the store for a part of it. Others are answered with 503.
const maxScrapes = 4

// metricsHandler answers with all metrics in the format of Prometheus.
func metricsHandler(groups []metric.Group, log *slog.Logger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newCollector(groups),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.HTTPErrorOnError,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})
}

// collector reads groups of metrics for a registry of Prometheus.
type collector struct {
	groups       []metric.Group
	descriptions map[*metric.Metric]*prometheus.Desc
}

func newCollector(groups []metric.Group) *collector {
	c := &collector{groups: groups, descriptions: make(map[*metric.Metric]*prometheus.Desc)}
	for _, g := range groups {
		for _, m := range g.Metrics {
			name := m.Name
			if !m.IsForeign {
				name = prometheus.BuildFQName(namespace, "", name)
			}
			c.descriptions[m] = prometheus.NewDesc(name, m.Help, m.Labels, nil)
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, description := range c.descriptions {
		out <- description
	}
}

// Collect implements prometheus.Collector. It reads a whole group before it sends the first figure, so that
// no lock is held while the receiver works.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, g := range c.groups {
		var samples metric.Samples
		g.Read(&samples)
		for i := range samples.List {
			out <- c.convert(&samples.List[i])
		}
	}
}

// kinds are the types of Prometheus for kinds that have one value.
var kinds = [...]prometheus.ValueType{metric.Counter: prometheus.CounterValue, metric.Gauge: prometheus.GaugeValue}

// convert returns a figure for Prometheus. A mistake in a label is an error of the scrape.
func (c *collector) convert(s *metric.Sample) prometheus.Metric {
	description := c.descriptions[s.Metric]
	var converted prometheus.Metric
	var err error
	if s.Metric.Kind == metric.Histogram {
		converted, err = prometheus.NewConstHistogram(description, s.Count, s.Value, s.Buckets, s.Labels...)
	} else {
		converted, err = prometheus.NewConstMetric(description, kinds[s.Metric.Kind], s.Value, s.Labels...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(description, err)
	}
	return converted
}
