package faults

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

// banAfter is how many refusals ban a subject of the policy p, and takesOf how many calls it allows; see
// testdata/policies.yaml.
const banAfter, takesOf = 3, 2

// standing is what the key of a standing holds. No ban or exemption ends during a test.
type standing struct {
	exempt, banned  bool
	level, refusals int
	reason          string // of the ban, as CL.BAN gave it
}

const standingFormat = "exempt=%t,banned=%t,level=%d,refusals=%d,reason=<%s"

func (s standing) String() string {
	if s == (standing{}) {
		return absent
	}
	return fmt.Sprintf(standingFormat, s.exempt, s.banned, s.level, s.refusals, s.reason)
}

// standingOf reads a text that String has written.
func standingOf(text string) (s standing) {
	if text != absent { // the reason may be empty: it comes last, so nothing else is missing
		_, _ = fmt.Sscanf(text, standingFormat, &s.exempt, &s.banned, &s.level, &s.refusals, &s.reason)
	}
	return s
}

var inspected = regexp.MustCompile(`(?:"banned_reason", "(\w+)", )?"level", (\d+), "refusals", (\d+)`)

// shownStanding returns the reply to CL.INSPECT in the form of String.
func shownStanding(reply string) string {
	found := inspected.FindStringSubmatch(reply)
	if found == nil {
		return reply
	}
	return standing{
		exempt: strings.Contains(reply, `"exempt_until"`), banned: strings.Contains(reply, `"banned_until"`),
		level: number(found[2]), refusals: number(found[3]), reason: found[1],
	}.String()
}

// standings takes from a policy until refusals ban the subject. Now and then, it bans, exempts or pardons the
// subject itself. A call that is allowed changes only the limit's key. All other calls except DEL change only
// the standing's key.
func standings(key []string) func(*rand.Rand, int, []string) plan {
	subject := key[0][strings.Index(key[0], "{")+1 : strings.Index(key[0], "}")]
	call := func(name, rest string) []string { return []string{name + " " + subject + " p" + rest} }
	return func(r *rand.Rand, v int, state []string) plan {
		s, left := standingOf(state[0]), number(state[1])
		p := plan{want: "+OK"}
		switch r.IntN(16) {
		case 0:
			s.banned, s.reason = true, fmt.Sprint("v", v)
			p.calls = call("CL.BAN", " 1000000 "+s.reason)
		case 1:
			s.banned, s.reason = false, ""
			p.calls = call("CL.BAN", " 0")
		case 2:
			s.exempt = !s.exempt
			p.calls = call("CL.EXEMPT", map[bool]string{true: " 1000000", false: " 0"}[s.exempt])
		case 3:
			s, p.want = standing{exempt: s.exempt}, ""
			p.calls = call("CL.PARDON", "")
		case 4:
			p.whole = s != standing{} && left < takesOf // it changes both keys, if there are both
			s, left, p.want = standing{}, takesOf, ""
			p.calls = []string{"DEL " + strings.Join(key, " ")}
		default:
			p.calls = call("CL.TAKE", "")
			p.want = s.take(&left)
		}
		p.after = []string{s.String(), fmt.Sprint(left)}
		return p
	}
}

// take models a call of CL.TAKE, and returns the beginning of its reply.
func (s *standing) take(left *int) string {
	switch {
	case s.exempt:
		return "[0, 9223372036854775807, "
	case s.banned:
	case *left > 0:
		*left--
		return fmt.Sprintf("[0, %d, %d, ", takesOf, *left)
	default:
		if s.refusals++; s.refusals == banAfter {
			s.banned, s.level, s.refusals = true, s.level+1, 0
		}
	}
	return fmt.Sprintf("[1, %d, 0, ", takesOf)
}
