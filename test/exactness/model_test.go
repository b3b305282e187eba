package exactness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A history of calls is linearizable if there is an order of them that explains every reply, and in which
// no call comes before one that was answered before it was sent. porcupine searches for that order in
// the states of a model. Nothing comes back during these histories, so times in replies are left out.

// asked is a call on an object, such as a counter.
type asked struct {
	object string
	key    string
	verb   string
	n      int64  // tokens, or what is added
	text   string // a value, a lease's holder, or an ID
	old    string // the value to compare with
}

// answer is a reply, or says that there was none: then the call may take effect, now or later, or
// never.
type answer struct {
	text    string
	unknown bool
}

// result is a possible result of a call: a reply, and the state after it.
type result struct {
	text  string
	state any
}

// objects has the model of each object: the first state, and the possible results of a call.
var objects = map[string]struct {
	initial any
	results func(state any, a asked) []result
}{
	"counter":  {int64(0), counterResults},
	"value":    {"", valueResults},
	"tokens":   {int64(1), tokenResults},
	"permits":  {"", permitResults},
	"quota":    {int64(0), quotaResults},
	"once":     {"", onceResults},
	"held":     {"", heldResults},
	"standing": {standing{}, standingResults},
}

func counterResults(state any, a asked) []result {
	sum := state.(int64) + a.n // a.n is 0 for a read
	return []result{{strconv.FormatInt(sum, 10), sum}}
}

func valueResults(state any, a asked) []result {
	switch {
	case a.verb == "read":
		return []result{{state.(string), state}}
	case a.verb == "write" || state == a.old:
		return []result{{"OK", a.text}}
	}
	return []result{{"", state}}
}

// tokensAtOnce is the limit of tokens and quotas, permitsAtOnce the limit of leases, and manyAtOnce a
// limit that no history reaches.
const tokensAtOnce, permitsAtOnce, manyAtOnce = 5, 3, 1000

// tokenResults is the model of a limit whose tokens come back too slowly to be noticed. The state is how
// many tokens were taken. The replies are limited, remaining and taken. A history begins some time after
// one token was taken. Servers are a little wrong about the store's clock, and just after the take a
// server that is behind would see a part of a second token missing.
func tokenResults(state any, a asked) []result {
	used := state.(int64)
	left := tokensAtOnce - used
	decide := func(limited, taken int64) []result {
		return []result{{fmt.Sprint(limited, left-taken, taken), used + taken}}
	}
	switch {
	case a.n <= left: // if a.n is negative, the tokens that are given back were taken before
		return decide(0, a.n)
	case a.verb == "up to" && left > 0:
		return decide(0, left)
	}
	return decide(1, 0)
}

// quotaResults is the model of a calendar quota of tokensAtOnce. The state is how many were taken.
func quotaResults(state any, a asked) []result {
	used := state.(int64)
	if used+a.n > tokensAtOnce {
		return []result{{fmt.Sprint(1, tokensAtOnce-used, 0), used}}
	}
	used = max(used+a.n, 0)
	return []result{{fmt.Sprint(0, tokensAtOnce-used, a.n), used}}
}

// onceResults is the model of a limit that never refuses, and whose calls all have an ID. The state is the
// IDs of the calls, in order: a repeated call gets the reply of the first.
func onceResults(state any, a asked) []result {
	made := strings.Fields(state.(string))
	at := slices.Index(made, a.text)
	if at < 0 {
		at, made = len(made), append(made, a.text)
	}
	return []result{{fmt.Sprint(0, manyAtOnce-at-1, 1), strings.Join(made, " ")}}
}

// heldAtOnce is how much each hold of a history charges.
const heldAtOnce = 5

// heldResults is the model of a limit that never refuses, and whose calls make holds and settle them. The state has
// the ID of each hold, and what was left after its charge. Once the hold is settled, the state also has the settled
// quantity, and what was left then.
func heldResults(state any, a asked) []result {
	holds, left, at := strings.Fields(state.(string)), int64(manyAtOnce), -1
	for i, one := range holds {
		hold := strings.Split(one, ",")
		if hold[0] == a.text {
			at = i
		}
		if left -= heldAtOnce; len(hold) > 2 {
			quantity, _ := strconv.ParseInt(hold[2], 10, 64)
			left += heldAtOnce - quantity
		}
	}
	with := func(text, hold string) []result {
		if next := slices.Clone(holds); at < 0 {
			holds = append(next, hold)
		} else {
			next[at], holds = hold, next
		}
		return []result{{text, strings.Join(holds, " ")}}
	}
	var hold []string
	if at >= 0 {
		hold = strings.Split(holds[at], ",")
	}
	switch {
	case a.verb == "hold" && at < 0:
		left -= heldAtOnce
		return with(fmt.Sprint(0, left, heldAtOnce), fmt.Sprint(a.text, ",", left))
	case a.verb == "hold":
		return []result{{fmt.Sprintf("0 %s %d", hold[1], heldAtOnce), state}}
	case at < 0:
		return []result{{"NOHOLD", state}}
	case len(hold) == 2:
		left -= a.n - heldAtOnce
		return with(fmt.Sprint(0, left, a.n-heldAtOnce), fmt.Sprint(holds[at], ",", a.n, ",", left))
	case hold[2] == strconv.FormatInt(a.n, 10):
		return []result{{fmt.Sprintf("0 %s %d", hold[3], a.n-heldAtOnce), state}}
	}
	return []result{{"HOLDSETTLED", state}}
}

// permitResults is the model of leases that do not end. The state is the names of their holders.
func permitResults(state any, a asked) []result {
	holders := strings.Fields(state.(string))
	at := slices.Index(holders, a.text)
	switch {
	case a.verb == "release" && at >= 0:
		return []result{{"1", strings.Join(slices.Delete(holders, at, at+1), " ")}}
	case a.verb == "release":
		return []result{{"0", state}}
	case len(holders) == permitsAtOnce:
		return []result{{"1 0", state}}
	}
	holders = append(holders, a.text)
	slices.Sort(holders)
	return []result{{fmt.Sprint(0, permitsAtOnce-len(holders)), strings.Join(holders, " ")}}
}

// model is the model of one object.
func model(object string) porcupine.Model {
	o := objects[object]
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{o.initial} },
		Step: func(state, input, output any) (next []any) {
			got := output.(answer)
			for _, r := range o.results(state, input.(asked)) {
				if got.unknown || r.text == got.text {
					next = append(next, r.state)
				}
			}
			if got.unknown {
				next = append(next, state)
			}
			return next
		},
	}).ToModel()
}
