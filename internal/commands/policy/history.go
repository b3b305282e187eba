package policy

import (
	"time"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/stats"
)

// historySteps are the steps of a history by the choice of the call.
var historySteps = [...]stats.Step{stats.Second, stats.Second, stats.Minute}

func (f *Family) history() *command.Command {
	return &command.Command{
		Name: "cl.history", Group: "limiter", Category: "policy", Since: "1.0.0",
		Complexity: "O(N) in the number of points", Flags: command.ReadOnly, Cost: command.Unbounded,
		Traits:    command.NamesArguments,
		KeyAccess: "RO ACCESS", Keys: command.KeyRules{Rights: f.historyRights},
		Summary: "Shows what a policy has decided in the last minutes, or in the last day.", Tips: command.Varying,
		Args: []command.Arg{command.Word("policy"), command.OneOf("step", "SECONDS", "MINUTES"),
			command.Int("n").Min(1).Max(int64(stats.Minute.MaxPoints())).Or(60).After("COUNT")},
		Reply: `A map: step, the seconds of a point; end_ms, the Unix time in milliseconds at which the last point ends;
sampled, a sample of the subjects that were asked about in the last minute, at most 256 for a policy; near, how many of
them had used 80 % of a limit or more; and the numbers of decisions in each point, the oldest first: allowed, limited,
shadow (allowed, because the policy is in shadow mode), banned, error. COUNT is the number of points, 60 by default: up
to 300 of a second, or up to 1440 of a minute. There are fewer if the policy is not that old; the present second or
minute is left out. Of more than 32 policies, the first 32 that decide have a history, and _other is for the others; *
is for all. A restart forgets the history, and CONFIG RESETSTAT does not. A user needs the right to all keys of the
policy, and for * and _other to all keys.`,
		Run: f.runHistory,
	}
}

// historyRights is policyRights, and for the sums of policies the name that only a pattern for all of them matches.
func (f *Family) historyRights(keys, words [][]byte, policies any) [][]byte {
	if name := string(words[1]); name == stats.AllPolicies || name == stats.OtherPolicies {
		return append(keys, []byte(f.prefix))
	}
	return f.policyRights(keys, words, policies)
}

func (f *Family) runHistory(c *command.Call) error {
	name := string(c.Word())
	step, most := historySteps[c.Choice()], int(c.Int())
	f.Files.Counts.Sample(c.Now() / int64(time.Second))
	points, end, known := f.Files.Counts.Past(name, step, most)
	if !known {
		if _, err := find(f.current(c), []byte(name)); err != nil {
			return err
		}
		return command.Refusal("ERR policy '" + command.Prefix([]byte(name), policies.MaxNameBytes) +
			"' has no history of its own: it is one of the policies that " + stats.OtherPolicies + " is for")
	}
	sampled, near := f.Files.Counts.Near(name)
	c.Out.Map(4 + len(stats.Results{}))
	c.Out.Field("step").Int(int64(step))
	c.Out.Field("end_ms").Int(c.Unix(end*int64(time.Second)) / 1e6)
	c.Out.Field("sampled").Int(sampled)
	c.Out.Field("near").Int(near)
	for r := range (stats.Results{}) {
		c.Out.BulkString(stats.Result(r).String())
		c.Out.Array(len(points))
		for i := range points {
			c.Out.Int(points[i][r])
		}
		c.Out.Break()
	}
	return nil
}
