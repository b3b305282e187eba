package policy

import (
	"time"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/metric"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/stats"
)

var (
	count     = metric.NewGauge("policies", "Policies in force.")
	failing   = metric.NewGauge("policies_failing", "1 while the files with policies are not valid; the last valid policies are in force.")
	decisions = metric.NewCounter("policy_decisions_total",
		"Decisions of policies, by policy and result: those of decisions_total, and banned for a call of a banned subject. "+
			"Of more than 32 policies, the first 32 that decide have their names, the others "+stats.OtherPolicies+".",
		"policy", "result")
	held = metric.NewCounter("policy_held_total",
		"The quantity that calls with HOLD have charged, by policy.",
		"policy")
	settled = metric.NewCounter("policy_settled_total",
		"The quantity that holds were settled with, by policy.",
		"policy")
	reported = metric.NewCounter("policy_thresholds_reached_total",
		"Reports that a subject has reached a threshold of notify, by policy. Only policies with notify are there.",
		"policy")
	lost = metric.NewCounter("policy_reports_lost_total",
		"Reports that subscribers did not get, because too many messages waited.")
)

// Metrics returns the metrics of reports. Without files, there are none.
func (r *Reports) Metrics(f *Files) metric.Group {
	if f.Read == nil {
		return metric.Group{Read: func(*metric.Samples) {}}
	}
	return metric.Group{Metrics: []*metric.Metric{reported, lost}, Read: func(out *metric.Samples) {
		inForce := f.InForce()
		f.Counts.EachReports(func(policy string, reports int64) {
			if p := inForce.Policy([]byte(policy)); reports > 0 || p != nil && p.Notify != nil {
				out.Int(reported, reports, policy)
			}
		})
		out.Int(lost, r.Lost())
	}}
}

// Metrics returns the metrics of policies. Without files, there are none.
func (f *Files) Metrics() metric.Group {
	if f.Read == nil {
		return metric.Group{Read: func(*metric.Samples) {}}
	}
	all := []*metric.Metric{count, failing, decisions, held, settled}
	return metric.Group{Metrics: all, Read: func(out *metric.Samples) {
		out.Int(count, int64(f.InForce().Len()))
		out.Bool(failing, f.failing.Load())
		f.Counts.Each(func(policy string, counts stats.Results) {
			for r, n := range counts {
				out.Int(decisions, n, policy, stats.Result(r).String())
			}
		})
		f.Counts.EachHolds(func(policy string, heldBy, settledBy int64) {
			out.Int(held, heldBy, policy)
			out.Int(settled, settledBy, policy)
		})
	}}
}

// beginCounts prepares the counts of the policies that will be in force. If the policies are few, the counts of
// all of them begin now, so that each series begins at 0, and its first decisions are visible.
func (f *Files) beginCounts(next *policies.Set) {
	f.Counts.Keep(func(name string) bool { return next.Policy([]byte(name)) != nil })
	if next.Len() > stats.MaxPolicies {
		return
	}
	for _, name := range next.Names() {
		p := next.Policy([]byte(name))
		p.Counts.Store(f.Counts.Of(name))
	}
}

// count counts a decision of a policy. A call that peeks does not count.
func (f *Family) count(c *command.Call, p *policies.Policy, m quota.Mode, r stats.Result) {
	if m != quota.Peek {
		f.countFor(c, p, r)
	}
}

func (f *Family) countsOf(p *policies.Policy) *stats.Decisions {
	counts := p.Counts.Load()
	if counts == nil {
		counts = f.Files.Counts.Of(p.Name)
		p.Counts.Store(counts)
	}
	return counts
}

func (f *Family) countFor(c *command.Call, p *policies.Policy, r stats.Result) {
	counts := f.countsOf(p)
	if c.InTransaction {
		countLater(c, counts, r)
		return
	}
	counts.Add(c.Client.ID, r)
}

// countLater is not a part of countFor, because its closure would make every call allocate.
func countLater(c *command.Call, counts *stats.Decisions, r stats.Result) {
	client := c.Client.ID
	c.AfterCommit(func() { counts.Add(client, r) })
}

// noteUse notes how much of a limit the subject of a sampled call has used. It leaves out transactions, which may still
// be undone.
func (f *Family) noteUse(c *command.Call, p *policies.Policy, subject []byte, d *quota.Decision) {
	if d.Limit > 0 && !c.InTransaction {
		f.countsOf(p).NoteUse(subject, c.Now()/int64(time.Second), d.Limit-d.Remaining, d.Limit)
	}
}

// NoteUse is the NoteUse of a decide.Decider.
func (f *Family) NoteUse(c *command.Call, p *decide.Part) {
	if p.Verdict.By == policies.ByLimit {
		f.noteUse(c, p.Policy, p.Subject.Text, &p.Verdict.Decision)
	}
}

// resultOf returns what a verdict is counted as.
func resultOf(v *policies.Verdict) stats.Result {
	switch {
	case v.Limited && v.By == policies.ByBan:
		return stats.Banned
	case v.Limited:
		return stats.Limited
	case v.Refused:
		return stats.Shadow
	}
	return stats.Allowed
}

// countShadow counts a call that is allowed because a policy is in shadow mode.
func countShadow(c *command.Call) {
	calls := c.Server.Stats.Of(c.Row.Number)
	c.AfterCommit(func() { calls.Shadowed.Add(1) })
}
