package policy

import "cellserver/internal/metric"

var (
	count   = metric.NewGauge("policies", "Policies in force.")
	failing = metric.NewGauge("policies_failing", "1 while the files with policies are not valid, so that those of before are in force.")
)

// Metrics returns the metrics of policies. Without files, there are none.
func (f *Files) Metrics() metric.Group {
	if f.Read == nil {
		return metric.Group{Read: func(*metric.Samples) {}}
	}
	return metric.Group{Metrics: []*metric.Metric{count, failing}, Read: func(out *metric.Samples) {
		out.Int(count, int64(f.InForce().Len()))
		out.Bool(failing, f.failing.Load())
	}}
}
