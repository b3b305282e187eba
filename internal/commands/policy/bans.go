package policy

import (
	"bytes"
	"cmp"
	"slices"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

func (f *Family) bans() *command.Command {
	return &command.Command{
		Name: "cl.bans", Group: "limiter", Category: "policy", Since: "1.0.0",
		Complexity: "O(N) in the number of keys of the database",
		Flags:      command.ReadOnly | command.Dangerous | command.NoMulti, Cost: command.Unbounded,
		Traits:    command.AnyKey | command.WalksKeys | command.NamesArguments,
		KeyAccess: "RO ACCESS", Keys: command.KeyRules{Rights: f.policyRights},
		Summary: "Lists the banned subjects of a policy.", Tips: command.Varying,
		Args: []command.Arg{command.Word("policy"), command.Int("count").Or(100).Min(1).Max(1000)},
		Reply: `For each of them, those with the longest bans first, a map: subject; seconds, until the ban ends; level, how many
bans refusals have led to, one soon after the other; reason, as CL.BAN gave it; key, which holds the ban. In place of a
subject of more than 256 bytes there are %# and its SHA-256, which CL.PARDON does not accept: DEL of the key pardons it,
and ends its exemption too. Exempt subjects are listed too if they are banned.`,
		Run: f.runBans,
	}
}

// policyRights returns the name to check against the key patterns of users: the common prefix of all keys
// of the policy.
func (f *Family) policyRights(keys, words [][]byte, _ any) [][]byte {
	return append(keys, append(append([]byte(f.prefix), words[1]...), ':'))
}

// keysPerPiece is the number of keys that CL.BANS asks the store for at once. The store visits them with
// its locks held.
const keysPerPiece = 128

func (f *Family) runBans(c *command.Call) error {
	p, err := find(f.current(c), c.Word())
	if err != nil {
		return err
	}
	s := banSearch{family: f, policy: p, most: int(c.Int())}
	for more := true; more; more = s.cursor != 0 {
		if c.Context.Err() != nil {
			return command.ErrStopped
		}
		if err := s.next(c); err != nil {
			return err
		}
		c.Yield()
	}
	s.shorten()
	c.Out.Array(len(s.found))
	for _, b := range s.found {
		c.Out.Map(5)
		c.Out.Field("subject").Bulk(b.subject)
		c.Out.Field("seconds").Int(command.WholeUnits(b.rest, false))
		c.Out.Field("level").Int(b.level)
		c.Out.Field("reason").BulkString(b.reason)
		c.Out.Field("key").Bulk(b.key)
	}
	return nil
}

// banSearch looks for the longest bans of a policy.
type banSearch struct {
	family *Family
	policy *policies.Policy
	cursor uint64
	piece  [][]byte // keys of the policy's standings that the store has visited last
	most   int      // how many bans are listed
	found  []banned
}

type banned struct {
	subject []byte
	rest    int64 // ns
	level   int64
	reason  string
	key     []byte
}

// next goes through some more keys.
func (s *banSearch) next(c *command.Call) (err error) {
	s.piece = s.piece[:0]
	visit := func(key []byte, _ store.Entry) {
		if _, ok := policies.SubjectOfStanding(key, s.family.prefix, s.policy); ok {
			s.piece = append(s.piece, bytes.Clone(key))
		}
	}
	if view, ok := c.View.(store.PatternScanner); ok {
		pattern := policies.StandingPattern(s.family.prefix, s.policy)
		s.cursor, err = view.ScanMatching(c.Context, s.cursor, pattern, false, keysPerPiece, visit)
	} else {
		s.cursor, err = c.View.Scan(c.Context, s.cursor, keysPerPiece, visit)
	}
	for _, key := range s.piece {
		if err != nil {
			return err
		}
		var state standing.State
		if state, err = c.View.Standing(c.Context, key); err == store.ErrWrongKind {
			err = nil
		} else if rest, is := state.Banned(c.View.Now()); is && err == nil {
			subject, _ := policies.SubjectOfStanding(key, s.family.prefix, s.policy)
			s.add(banned{subject, rest, state.Level, state.Ban.Reason, key})
		}
	}
	return err
}

// add adds a ban. It keeps at most twice as many bans as are listed.
func (s *banSearch) add(b banned) {
	if s.found = append(s.found, b); len(s.found) == 2*s.most {
		s.shorten()
	}
}

// shorten sorts the bans that were found, and forgets bans that will not be listed.
func (s *banSearch) shorten() {
	slices.SortFunc(s.found, func(a, b banned) int {
		return cmp.Or(cmp.Compare(b.rest, a.rest), bytes.Compare(a.subject, b.subject))
	})
	s.found = s.found[:min(len(s.found), s.most)]
}
