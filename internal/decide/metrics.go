package decide

import (
	"cellserver/internal/command"
	"cellserver/internal/metric"
)

var (
	idsRemembered = metric.NewGauge("ids_remembered", "Calls with an ID whose decisions are remembered.")
	idsForgotten  = metric.NewCounter("ids_forgotten_total", "IDs that were forgotten before their time, because there were too many.")
	idsRepeated   = metric.NewCounter("ids_repeated_total", "Calls that got the decision of an earlier call with the same ID.")

	holdsOpen    = metric.NewGauge("holds_open", "Open holds: charges that may still be corrected.")
	holdsMade    = metric.NewCounter("holds_made_total", "Holds that calls of this server have made.")
	holdsSettled = metric.NewCounter("holds_settled_total", "Holds that calls of this server have settled.")
	holdsLapsed  = metric.NewCounter("holds_lapsed_total", "Holds that lapsed, so that what they had charged stays charged: "+
		"because their time was over, or early, because there were too many.", "why")
	holdsGivenBack = metric.NewCounter("holds_given_back_total", "The quantity that settled holds have given back.")

	storeFailing   = metric.NewGauge("store_failing", "1 while the store does not make decisions, and --store-fails answers them.")
	storeDecisions = metric.NewCounter("store_failed_decisions_total",
		"Decisions that the store did not make, by what --store-fails answered: error, allow, deny, local.", "answer")
)

// Metrics returns the metrics of IDs, and of a store that can fail.
func (d *Decider) Metrics() []metric.Group {
	return append([]metric.Group{{
		Metrics: []*metric.Metric{idsRemembered, idsForgotten, idsRepeated},
		Read: func(out *metric.Samples) {
			if d.Tokens != nil {
				remembered, forgotten := d.Tokens.Tokens()
				out.Int(idsRemembered, int64(remembered))
				out.Int(idsForgotten, forgotten)
			}
			out.Int(idsRepeated, d.repeats.Load())
		},
	}, d.holdMetrics()}, d.Fallback.metrics()...)
}

// holdMetrics returns the metrics of holds.
func (d *Decider) holdMetrics() metric.Group {
	return metric.Group{
		Metrics: []*metric.Metric{holdsOpen, holdsMade, holdsSettled, holdsLapsed, holdsGivenBack},
		Read: func(out *metric.Samples) {
			if d.Holds != nil { // otherwise no server knows all holds, and 0 would be wrong
				counts := d.Holds.Holds()
				out.Int(holdsOpen, int64(counts.Open))
				out.Int(holdsLapsed, counts.Lapsed, "time")
				out.Int(holdsLapsed, counts.Early, "early")
			}
			out.Int(holdsMade, d.held.made.Load())
			out.Int(holdsSettled, d.held.settled.Load())
			out.Int(holdsGivenBack, d.held.givenBack.Load())
		},
	}
}

// InfoHolds is the part of INFO about holds.
func (d *Decider) InfoHolds() command.InfoPart {
	return command.InfoPart{Section: "Cell", Write: func(_ *command.Call, out *command.InfoText) {
		if d.Holds != nil {
			counts := d.Holds.Holds()
			out.Add("cell_holds", counts.Open)
			out.Add("cell_holds_lapsed", counts.Lapsed)
			out.Add("cell_holds_lapsed_early", counts.Early)
		}
		out.Add("cell_holds_made", d.held.made.Load())
		out.Add("cell_holds_settled", d.held.settled.Load())
		out.Add("cell_holds_given_back", d.held.givenBack.Load())
	}}
}

// metrics returns the metrics of a store that can fail.
func (f *Fallback) metrics() []metric.Group {
	if f.Log == nil {
		return nil
	}
	return []metric.Group{{
		Metrics: []*metric.Metric{storeFailing, storeDecisions},
		Read: func(out *metric.Samples) {
			out.Bool(storeFailing, f.failing.Load())
			for i, policy := range Answers {
				out.Int(storeDecisions, f.answers[i].Load(), policy)
			}
		},
	}}
}

// Info returns the part of INFO about decisions that the store did not make, since the server started.
// There is none if the store cannot fail.
func (f *Fallback) Info() []command.InfoPart {
	if f.Log == nil {
		return nil
	}
	return []command.InfoPart{{Section: "Store", Write: func(_ *command.Call, out *command.InfoText) {
		out.Add("store_fails", Answers[f.policy.Load()])
		out.Bool("store_failing", f.failing.Load())
		for i, field := range [len(Answers)]string{"errors", "allowed", "limited", "local"} {
			out.Add("store_decisions_"+field, f.answers[i].Load())
		}
	}}}
}

// InfoTokens is the part of INFO about ID tokens. Tokens in a store in another program are not counted.
func (d *Decider) InfoTokens() command.InfoPart {
	return command.InfoPart{Section: "Cell", Write: func(_ *command.Call, out *command.InfoText) {
		remembered, forgotten := 0, int64(0)
		if d.Tokens != nil {
			remembered, forgotten = d.Tokens.Tokens()
		}
		out.Add("cell_ids", remembered)
		out.Add("cell_ids_forgotten", forgotten)
		out.Add("cell_ids_repeated", d.repeats.Load())
	}}
}
