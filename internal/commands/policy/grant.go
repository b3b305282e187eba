package policy

import (
	"strings"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

func (f *Family) grant() *command.Command {
	row := f.changesStanding(command.Command{
		Name: "cl.grant", Summary: "Lets a subject take more of a limit of a policy than others until the present window of the limit ends.",
		Reply: `OK. The limit, fixed or quota, is larger by the quantity. A further call sets another quantity in its place, and 0 ends the grant.
limit is the label that keys and CL.EXPLAIN call the limit by, such as fixed or hour.fixed. If the subject has taken nothing of a fixed, the grant lasts for
one period from now. A subject has at most 8 grants of a policy.`,
		Run: f.runGrant,
	}, command.Word("limit"), command.Int("quantity").Min(0),
		command.Word("reason").Optional().Longest(standing.MaxReason))
	row.Complexity = "O(N) in the number of limits and overrides"
	row.Cost = command.Unbounded // because the subject is compared with the patterns of overrides
	row.Effort = &command.Effort{Fixed: func(words [][]byte) int {
		return 2 * f.MemberWork(f.Snapshot(), words[1], words[2], false)
	}}
	row.Keys.Touched = f.touched // the limit says when its window ends
	return row
}

func (f *Family) runGrant(c *command.Call) error {
	text, name, label := c.Key(), c.Word(), string(c.Word())
	grant := standing.Grant{Label: label, Quantity: c.Int(), Term: standing.Term{Reason: string(c.Word())}}
	p, err := find(f.current(c), name)
	if err != nil {
		return err
	}
	s, without, work := treatCounted(p, text)
	c.Work += work
	keys := f.keysOf(p, s, without)
	places := make([]store.KeyRef, len(keys))
	for i, key := range keys {
		places[i] = store.KeyRef{Database: c.View.Selected(), Key: key}
	}
	err = c.View.Atomically(c.Context, places, false, func() error {
		state, err := c.View.Standing(c.Context, keys[0])
		if err != nil {
			return err
		}
		t := p.PlanFor(c.View.Now(), &state, without)
		i := t.Find(label)
		switch {
		case i < 0:
			return command.Refusal("ERR the subject has no limit '" + command.Prefix([]byte(label), standing.MaxLabel) +
				"' of policy '" + p.Name + "'" + labels(t.Limits))
		case !t.Limits[i].Grantable():
			return errNotGrantable
		}
		return giveGrant(c, keys[0], keys[1+i], &t.Limits[i], grant)
	})
	if err == nil {
		c.Out.Status("OK")
	}
	return err
}

// labels tells which limits a subject has, for the error of a call that names another.
func labels(limits []policies.Limit) string {
	if len(limits) == 0 {
		return ""
	}
	names := make([]string, len(limits))
	for i := range limits {
		names[i] = limits[i].Label()
	}
	return "; it has " + strings.Join(names, ", ")
}

// The refusals of CL.GRANT.
const (
	errNotGrantable command.Refusal = "ERR more can be granted of a fixed or a quota, whose windows end, and of no other limit"
	errManyGrants   command.Refusal = "ERR the subject has 8 other grants"
)

// giveGrant sets a grant in the standing of a subject. It ends with the window from which a call would take now.
func giveGrant(c *command.Call, key, limitKey []byte, l *policies.Limit, grant standing.Grant) error {
	rule := l.Rule
	rule.Window = rule.Window.Plus(max(grant.Quantity, 1)) // a limit of 0 has no window
	requests := []store.LimitRequest{{Key: limitKey, Rule: rule, Quantity: 1, Mode: quota.Take}}
	decisions, _, err := c.View.TakeAll(c.Context, requests, quota.Peek)
	if err != nil {
		return err
	}
	given := false
	err = c.View.EditStanding(c.Context, key, func(now int64, s standing.State) (next standing.State) {
		grant.Until = now + decisions[0].ResetAfter
		next, given = s.Grant(now, grant)
		return next
	})
	if err == nil && !given {
		return errManyGrants
	}
	return err
}
