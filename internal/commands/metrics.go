package commands

import (
	"slices"

	"cellserver/internal/client"
	"cellserver/internal/metric"
	"cellserver/internal/session"
)

var (
	blocked       = metric.NewGauge("clients_blocked", "Clients that wait, in WAIT, CLIENT PAUSE or a limiter's option WAIT.")
	subscriptions = metric.NewGauge("pubsub_channels", "Channels or patterns to which a client is subscribed.", "kind")
	trackedKeys   = metric.NewGauge("tracking_keys", "Keys that clients with CLIENT TRACKING have read.")
)

// metrics lists the metrics of all families.
func (f *families) metrics(in *session.Instance) []metric.Group {
	return slices.Concat(
		f.admin.Metrics(&in.Server), f.limiters.Metrics(&in.Server),
		[]metric.Group{f.persistence.Metrics(), f.policies.Files.Metrics(),
			f.policies.Reports.Metrics(f.policies.Files), in.OwnMetrics(), f.messageMetrics()},
	)
}

// messageMetrics returns the metrics of families that have no others.
func (f *families) messageMetrics() metric.Group {
	return metric.Group{
		Metrics: []*metric.Metric{blocked, subscriptions, trackedKeys},
		Read: func(out *metric.Samples) {
			out.Int(blocked, int64(f.connection.Blocked.Count()))
			out.Int(subscriptions, int64(f.channels.Count(client.ToChannel)), "channel")
			out.Int(subscriptions, int64(f.channels.Count(client.ToPattern)), "pattern")
			out.Int(subscriptions, int64(f.channels.Count(client.ToShardChannel)), "shardchannel")
			out.Int(trackedKeys, f.tracking.Figures().Keys)
		},
	}
}
