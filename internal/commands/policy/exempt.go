package policy

import (
	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/standing"
)

// The rows that change a subject's standing. They work while memory is full, because that may be when
// they are needed.

// maxSeconds is the longest exemption or ban: a hundred years, so that its end can be represented in any
// server.
const maxSeconds = 100 * 365 * 24 * 3600

// changesStanding completes a row that changes the standing of a subject.
func (f *Family) changesStanding(row command.Command, more ...command.Arg) *command.Command {
	row.Group, row.Category, row.Since, row.Complexity = "limiter", "policy", "1.0.0", "O(1)"
	row.Flags, row.Cost = command.Write|command.Admin|command.Dangerous, command.Constant
	row.KeyAccess, row.Traits = "RW UPDATE", command.NamesArguments
	row.Args = append([]command.Arg{command.Key("subject"), command.Word("policy")}, more...)
	row.Keys = command.KeyRules{Rights: f.rights, Touched: f.touchedStanding, Snapshot: f.Snapshot}
	return &row
}

func term() []command.Arg {
	return []command.Arg{command.Period("seconds").Min(0).Max(maxSeconds),
		command.Word("reason").Optional().Longest(standing.MaxReason)}
}

const termReply = "The time may have a unit, such as 90s, 12h or 30d."

func (f *Family) exempt() *command.Command {
	return f.changesStanding(command.Command{
		Name: "cl.exempt", Summary: "Exempts a subject from a policy for some time; 0 ends the exemption.",
		Reply: "OK. Every call of CL.TAKE is allowed, and takes nothing but what SETTLE corrects, even if the subject is banned or " +
			"blocked. " + termReply,
		Run: func(c *command.Call) error {
			return f.setTerm(c, standing.State.ExemptFor)
		},
	}, term()...)
}

func (f *Family) ban() *command.Command {
	return f.changesStanding(command.Command{
		Name: "cl.ban", Summary: "Bans a subject of a policy for some time; 0 ends the ban.",
		Reply: "OK. Every call of CL.TAKE is refused, and takes nothing, unless it has SETTLE, the subject is exempt, or the policy in " +
			"shadow mode. " + termReply,
		Run: func(c *command.Call) error {
			return f.setTerm(c, standing.State.BanFor)
		},
	}, term()...)
}

func (f *Family) pardon() *command.Command {
	return f.changesStanding(command.Command{
		Name: "cl.pardon", Summary: "Ends the ban of a subject, and forgets its refusals and earlier bans.",
		Reply: "1 if there was anything to forget, otherwise 0. An exemption stays.",
		Run: func(c *command.Call) error {
			key, err := f.keyOfStanding(c)
			if err != nil {
				return err
			}
			forgot := false
			err = c.View.EditStanding(c.Context, key, func(now int64, s standing.State) standing.State {
				next := s.Pardon(now)
				forgot = next != s.At(now)
				return next
			})
			if err != nil {
				return err
			}
			c.WriteBool(forgot)
			return nil
		},
	})
}

// setTerm gives a subject an exemption or a ban.
func (f *Family) setTerm(
	c *command.Call, set func(s standing.State, now, duration int64, reason string) standing.State,
) error {
	key, err := f.keyOfStanding(c)
	if err != nil {
		return err
	}
	duration, _ := c.Period().Nanoseconds(maxSeconds) // 0 if there is none
	reason := string(c.Word())
	err = c.View.EditStanding(c.Context, key, func(now int64, s standing.State) standing.State {
		return set(s, now, duration, reason)
	})
	if err != nil {
		return err
	}
	c.Out.Status("OK")
	return nil
}

// keyOfStanding reads the subject and the policy of a call, and returns the key of the standing.
func (f *Family) keyOfStanding(c *command.Call) ([]byte, error) {
	text, name := c.Key(), c.Word()
	p, err := find(f.current(c), name)
	if err != nil {
		return nil, err
	}
	return f.standingKey(p, p.Subject(text)), nil
}

// touchedStanding returns the key of a call that changes a standing.
func (f *Family) touchedStanding(keys, words [][]byte, snapshot any) [][]byte {
	p := snapshot.(*policies.Set).Policy(words[2])
	if p == nil {
		return keys
	}
	return append(keys, f.standingKey(p, p.Subject(words[1])))
}

// standingKey returns the key of a subject's exemption, its ban and its refusals, which few subjects have.
func (f *Family) standingKey(p *policies.Policy, s policies.Subject) []byte {
	return policies.AppendKey(nil, f.prefix, p, s, policies.StandingLabel)
}
