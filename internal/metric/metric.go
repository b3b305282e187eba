// Package metric describes what a server measures, for monitoring systems. Each family of commands
// lists its metrics as values, as it lists its parts of INFO: a name, a kind, a sentence, and a function
// that reads the figure. The package monitor shows them to Prometheus; this one knows no monitoring
// system.
//
// Metrics are read while clients are served. So a function that reads them takes no longer than INFO does,
// and returns a number of figures that does not depend on what clients send: no label is ever the name of
// a key, an address or a user.
package metric

// Kind is what may happen to a figure.
type Kind uint8

const (
	Counter   Kind = iota // it only grows, until the server restarts or CONFIG RESETSTAT sets it to zero
	Gauge                 // it grows and shrinks
	Histogram             // counts of durations, by their upper bounds
)

// Metric is a figure, or one figure for each combination of values of its labels.
type Metric struct {
	Name   string // without the name of the server; the last words are the unit, and total for a counter
	Kind   Kind
	Help   string // a sentence
	Labels []string

	IsForeign bool // the name is complete: it is another program's
}

// NewCounter returns a metric that only grows.
func NewCounter(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Kind: Counter, Help: help, Labels: labels}
}

// NewGauge returns a metric that grows and shrinks.
func NewGauge(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Kind: Gauge, Help: help, Labels: labels}
}

// NewHistogram returns a metric that counts durations.
func NewHistogram(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Kind: Histogram, Help: help, Labels: labels}
}

// Group is a list of metrics that are read together, because they come from the same place: what they
// show is of one moment, and reading them takes a lock once.
type Group struct {
	Metrics []*Metric
	Read    func(out *Samples)
}

// Sample is a figure at one moment.
type Sample struct {
	Metric *Metric
	Labels []string // the values of its labels
	Value  float64  // of a histogram, the sum of the durations in seconds
	Durations
}

// Durations is what a histogram has counted.
type Durations struct {
	Count   uint64
	Buckets map[float64]uint64 // by upper bounds in seconds: how many durations were no longer
}

// Samples receives the figures of a group.
type Samples struct{ List []Sample }

// Int adds a figure that is an integer.
func (s *Samples) Int(m *Metric, value int64, labels ...string) {
	s.Float(m, float64(value), labels...)
}

// Bool adds a figure that is 1 for yes, 0 for no.
func (s *Samples) Bool(m *Metric, value bool, labels ...string) {
	if value {
		s.Float(m, 1, labels...)
	} else {
		s.Float(m, 0, labels...)
	}
}

// Float adds a figure.
func (s *Samples) Float(m *Metric, value float64, labels ...string) {
	s.List = append(s.List, Sample{Metric: m, Labels: labels, Value: value})
}

// Histogram adds what a histogram has counted, and the sum of the durations in seconds.
func (s *Samples) Histogram(m *Metric, sum float64, counted Durations, labels ...string) {
	s.List = append(s.List, Sample{Metric: m, Labels: labels, Value: sum, Durations: counted})
}
