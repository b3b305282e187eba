package policy

import (
	"strings"

	"cellserver/internal/command"
)

const policyFlags = command.Admin | command.Dangerous | command.Loading | command.Stale

func (f *Family) policy() *command.Command {
	return &command.Command{
		Name: "cl.policy", Group: "server", Category: "policy", Since: "1.0.0",
		Complexity: "Depends on the subcommand.",
		Min:        2, Summary: "Commands about policies, which are in the files of --policies.", AnyMore: true,
		Subs: []*command.Command{f.list(), f.get(), f.test(), f.reload(), command.HelpOf("cl.policy", "1.0.0")},
	}
}

func (f *Family) list() *command.Command {
	return &command.Command{
		Name: "cl.policy|list", Group: "server", Category: "policy", Since: "1.0.0",
		Complexity: "O(N) in the number of policies", Flags: policyFlags, Cost: command.Unbounded,
		Summary: "Lists the names of all policies.", Reply: "The names, in order.",
		Run: func(c *command.Call) error {
			c.Out.BulkStrings(f.current(c).Names())
			return nil
		},
	}
}

func (f *Family) get() *command.Command {
	return &command.Command{
		Name: "cl.policy|get", Group: "server", Category: "policy", Since: "1.0.0",
		Complexity: "O(N) in the number of limits and overrides", Flags: policyFlags, Cost: command.Unbounded,
		Summary: "Shows a policy.", Args: []command.Arg{command.Word("policy")},
		Reply: "A map: limits, overrides, and the other fields that the file has.",
		Run: func(c *command.Call) error {
			p, err := find(f.current(c), c.Word())
			if err != nil {
				return err
			}
			fields := p.Describe()
			c.Out.Map(len(fields))
			for _, field := range fields {
				c.Out.Field(field.Name).BulkStrings(field.Lines)
			}
			return nil
		},
	}
}

func (f *Family) test() *command.Command {
	return &command.Command{
		Name: "cl.policy|test", Group: "server", Category: "policy", Since: "1.0.0",
		Complexity: "O(N) in the number of limits and overrides", Flags: policyFlags, Cost: command.Unbounded,
		Effort:  &command.Effort{Fixed: f.testWork},
		Summary: "Shows how a policy treats a subject, without taking anything.",
		Args: []command.Arg{command.Word("subject"), command.Word("policy"),
			command.Word("[HEADER name value [HEADER name value ...]]").Optional().Many()},
		Secrets: command.SecretsFrom(headersAt + 1), // a header may be the password of a client
		Reply: `A map: subject, as keys name it; override, its number in the file from 1 on, or 0; effect; limits. A subject
that would take too long to be compared with the patterns of the policy is blocked, with override 0. With HEADER, the
subject is what the from of the policy makes of a request with these headers, and the call names the address of its
client instead, or - if it has none. If a header of from is missing, an error says which.`,
		Run: func(c *command.Call) error {
			text, name := c.Word(), c.Word()
			p, err := find(f.current(c), name)
			if err != nil {
				return err
			}
			if text, err = testSubject(p, text, c.Many()); err != nil {
				return err
			}
			s, t, work := treatCounted(p, text)
			c.Work += work + len(text)
			c.Out.Map(4)
			c.Out.Field("subject").Bulk(s.Text)
			c.Out.Field("override").Int(int64(t.Override + 1))
			c.Out.Field("effect").BulkString(t.Effect.String())
			c.Out.Field("limits").Array(len(t.Limits))
			for i := range t.Limits {
				c.Out.BulkString(t.Limits[i].String())
			}
			return nil
		},
	}
}

// testWork returns the work of a CL.POLICY TEST in a transaction.
func (f *Family) testWork(words [][]byte) int {
	set := f.Files.InForce()
	p := set.Policy(words[3])
	if p == nil {
		return 0
	}
	subject, err := testSubject(p, words[2], words[headersAt:])
	if err != nil {
		return 0
	}
	return f.MemberWork(set, subject, words[3], false) + len(subject)
}

func (f *Family) reload() *command.Command {
	return &command.Command{
		Name: "cl.policy|reload", Group: "server", Category: "policy", Since: "1.0.0",
		Complexity: "O(N) in the size of the files", Flags: policyFlags | command.NoMulti, Cost: command.Unbounded,
		Summary: "Reads the files of --policies again.",
		Reply:   "What has changed, in lines. If a file is not valid, an error, and nothing has changed.",
		Run: func(c *command.Call) error {
			changes, err := f.Files.Reload()
			if err != nil {
				return command.Refusal("ERR " + strings.TrimPrefix(oneLine(err), "ERR "))
			}
			c.Out.BulkStrings(changes)
			return nil
		},
	}
}
