package policy

import (
	"cmp"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/standing"
)

func (f *Family) plan() *command.Command {
	return f.changesStanding(command.Command{
		Name: "cl.plan", Summary: "Gives a subject one of the plans of a policy for some time, or shows which it has; 0 is for good.",
		Reply: `OK, or without a name a map: plan, whose limits the subject has unless an override is for it (empty if there is none); given, the plan that it
was given (empty if there is none); seconds, until that ends; reason. The name - takes the plan away. What the subject has used stays.
For good is a hundred years. A plan that the policy does not have any more does not matter. ` + termReply,
		Run: f.runPlan,
	}, command.Word("name").Optional(), command.Period("seconds").Min(0).Max(maxSeconds).Or(0),
		command.Word("reason").Optional().Longest(standing.MaxReason))
}

// The indexes of words of the call.
const (
	planNameAt    = 3
	planSecondsAt = 4
)

// noPlan is the name that takes a plan away.
const noPlan = "-"

func (f *Family) runPlan(c *command.Call) error {
	text, name, plan := c.Key(), c.Word(), string(c.Word())
	seconds, reason := c.Period(), string(c.Word())
	p, err := find(f.current(c), name)
	if err != nil {
		return err
	}
	key := f.standingKey(p, p.Subject(text))
	duration := int64(0)
	switch {
	case len(c.Words) <= planNameAt:
		return showPlan(c, p, key)
	case plan == noPlan:
	case p.Plan(plan) == nil:
		plan = command.Prefix([]byte(plan), standing.MaxPlan)
		return command.Refusal("ERR policy '" + p.Name + "' has no plan '" + plan + "'")
	case len(c.Words) <= planSecondsAt:
		return command.ErrArity(c.Row)
	default:
		if duration, _ = seconds.Nanoseconds(maxSeconds); duration == 0 {
			duration = maxSeconds * 1e9
		}
	}
	err = c.View.EditStanding(c.Context, key, func(now int64, s standing.State) standing.State {
		return s.PlanFor(now, duration, plan, reason)
	})
	if err != nil {
		return err
	}
	c.Out.Status("OK")
	return nil
}

// showPlan shows the plan of a subject. It does not look for an override, which may take long.
func showPlan(c *command.Call, p *policies.Policy, key []byte) error {
	state, err := c.View.Standing(c.Context, key)
	if err != nil {
		return err
	}
	now := c.View.Now()
	given, limits := state.At(now).Plan, policies.Treatment{Limits: p.Limits, Override: -1}
	decides := cmp.Or(p.PlanFor(now, &state, limits).Plan, p.DefaultPlan)
	c.Out.Map(4)
	c.Out.Field("plan").BulkString(decides)
	c.Out.Field("given").BulkString(given.Name)
	c.Out.Field("seconds").Int(command.WholeUnits(max(given.Until-now, 0), false))
	c.Out.Field("reason").BulkString(given.Reason)
	return nil
}
