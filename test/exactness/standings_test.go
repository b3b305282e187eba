package exactness

import (
	"fmt"
	"math"
	"testing"
)

// banAfter is how many refusals ban a subject of the policy p, and takesAtOnce is the policy's
// limit: see testdata/policies.yaml.
const banAfter, takesAtOnce = 3, 2

// standing is the model of a subject of a policy: what it has taken, and its standing.
type standing struct {
	taken, refusals int64
	level           int64 // bans because of refusals
	banned, exempt  bool
}

// decisionOf returns the text of a reply to CL.TAKE: "exempt", "ban", or limited and remaining. A ban lasts
// longer than the period of the limit.
func decisionOf(reply []any) string {
	const period = 1_000_000 // seconds
	switch {
	case reply[1] == int64(math.MaxInt64):
		return "exempt"
	case reply[3].(int64) > period:
		return "ban"
	}
	return fmt.Sprint(reply[0], reply[2])
}

func standingResults(state any, a asked) []result {
	s := state.(standing)
	switch a.verb {
	case "ban":
		s.banned = a.n > 0
		return []result{{"OK", s}}
	case "exempt":
		s.exempt = a.n > 0
		return []result{{"OK", s}}
	case "pardon":
		forgets := 0
		if s.banned || s.refusals > 0 || s.level > 0 {
			forgets = 1
		}
		return []result{{fmt.Sprint(forgets), standing{taken: s.taken, exempt: s.exempt}}}
	case "take":
		text := s.take()
		return []result{{text, s}}
	}
	return nil
}

// take is the model of a call of CL.TAKE: an exemption comes before a ban, and a ban before the
// limits.
func (s *standing) take() string {
	switch {
	case s.exempt:
		return "exempt"
	case s.banned:
		return "ban"
	case s.taken < takesAtOnce:
		s.taken++
		return fmt.Sprint(0, takesAtOnce-s.taken)
	}
	if s.refusals++; s.refusals < banAfter {
		return fmt.Sprint(1, 0)
	}
	s.banned, s.level, s.refusals = true, s.level+1, 0
	return "ban"
}

// Wrong replies about bans are found.
func TestContradictionsAboutBansAreFound(t *testing.T) {
	take, change := asked{object: "standing", verb: "take"}, answer{text: "OK"}
	first, second := reply{take, answer{text: "0 1"}}, reply{take, answer{text: "0 0"}}
	refused, banned, unlimited := reply{take, answer{text: "1 0"}}, reply{take, answer{text: "ban"}},
		reply{take, answer{text: "exempt"}}
	exempt := reply{asked{object: "standing", verb: "exempt", n: long}, change}
	ban := reply{asked{object: "standing", verb: "ban", n: long}, change}
	pardon := reply{asked{object: "standing", verb: "pardon"}, answer{text: "1"}}
	unsure := reply{take, answer{unknown: true}}
	for name, test := range map[string]struct {
		right   bool
		replies []reply
	}{
		"the third refusal bans":     {true, []reply{first, second, refused, refused, banned, banned}},
		"one of them is unsure":      {true, []reply{first, second, refused, unsure, banned}},
		"a refusal is counted twice": {false, []reply{first, second, refused, banned}},
		"a refusal is not counted":   {false, []reply{first, second, refused, refused, refused}},
		"an exemption beats a ban":   {true, []reply{ban, banned, exempt, unlimited, pardon, unlimited}},
		"a ban beats an exemption":   {false, []reply{ban, exempt, banned}},
		"a ban is not found":         {false, []reply{ban, first}},
		"a banned subject takes":     {false, []reply{ban, banned, pardon, second}},
		"a pardon forgets refusals":  {true, []reply{first, second, refused, refused, pardon, refused}},
	} {
		requireRight(t, name, test.right, test.replies)
	}
}
