package session

import "cellserver/internal/metric"

var (
	waitingCallsGauge = metric.NewGauge("calls_waiting", "Calls that wait until a limiter admits them (option WAIT).")
	backgroundGauge   = metric.NewGauge("calls_background",
		"Calls that run, or wait to run, outside of the event loops because they may take long.")
)

// OwnMetrics returns the metrics of calls that are not answered at once.
func (in *Instance) OwnMetrics() metric.Group {
	return metric.Group{
		Metrics: []*metric.Metric{waitingCallsGauge, backgroundGauge},
		Read: func(out *metric.Samples) {
			out.Int(waitingCallsGauge, int64(in.waiting.count()))
			out.Int(backgroundGauge, int64(in.Background.Busy.Load()))
		},
	}
}
