package faults

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// after returns a history of a subject with a step every ten seconds. Each step is answered after
// four seconds, and the last step is not answered.
func after(views ...string) *history {
	h := &history{name: "subject"}
	for i, v := range views {
		sent := time.Duration(i) * 10 * time.Second
		h.steps = append(h.steps, step{sent: sent, answered: sent + 4*time.Second, after: view{text: v}})
	}
	h.steps[0].answered = 0
	h.steps[len(views)-1].answered = never
	return h
}

// The checker finds planted faults: a lost step, a part of a step, an old value, a value that was
// never written, and another key's expiry.
func TestTheCheckerFindsPlantedFaults(t *testing.T) {
	group := after("nil nil", "1 1", "2 nil", "3 3", "4 4")
	for _, c := range []struct {
		found, says string
		promised    time.Duration
	}{
		{"nil nil", "", 13 * time.Second},
		{"4 4", "", 0},
		{"2 nil", "", 33 * time.Second},
		{"3 3", "", 34 * time.Second},
		{"4 4", "", 34 * time.Second},
		{"3 3", "", always},
		{"2 nil", "is as after step 2 of 4, but step 3 was answered at 34s, 0s before the promise: 2 nil instead of 3 3",
			34 * time.Second},
		{"nil nil", "is as after step 0 of 4", 14 * time.Second},
		{"3 4", "has never been 3 4", 0},
		{"3 nil", "has never been 3 nil; after step 2 of 4, which was promised, it was 2 nil", 30 * time.Second},
		{"5 5", "has never been 5 5", 0},
	} {
		err := group.check(view{text: c.found}, c.promised)
		if c.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.says)
		}
	}
	expiring := after("nil", "1", "1")
	expiring.steps[1].after.until = span{100, 200}
	expiring.steps[2].after.until = span{300, 400}
	require.NoError(t, expiring.check(view{"1", span{150, 250}}, 0))
	require.NoError(t, expiring.check(view{"1", span{350, 360}}, 14*time.Second))
	require.Error(t, expiring.check(view{"1", span{250, 260}}, 0))
	require.Error(t, expiring.check(view{text: "1"}, 0))
	found := view{"1", span{time.Hour, time.Hour + time.Millisecond}}
	require.True(t, found.later().matches(view{"1", span{time.Hour - clockError, time.Hour - clockError/2}}))
	require.False(t, found.later().matches(view{"1", span{time.Hour + 2*clockError, time.Hour + 3*clockError}}))
	require.Equal(t, view{text: "1"}, view{text: "1"}.later())
}

// Keys that are changed one at a time may have the values after different steps, but no step that
// changed both may be missing from one of them only.
func TestKeysThatAreApart(t *testing.T) {
	h := after("a 0", "a 1", "b 1", "nil nil", "nil 2", "c 2", "c 3")
	h.steps[3].whole = true
	found := func(text string, promised time.Duration) error { return h.check(view{text: text}, promised) }
	require.ErrorContains(t, found("b 0", 0), "has never been b 0")
	h.apart = true
	require.NoError(t, found("b 0", 0))
	require.NoError(t, found("c nil", 0))
	require.NoError(t, found("nil 3", 34*time.Second))
	require.ErrorContains(t, found("b nil", 0), "has never been b nil")
	require.ErrorContains(t, found("nil 0", 0), "has never been nil 0")
	require.ErrorContains(t, found("b 0", 14*time.Second), "has never been b 0", "a 1 was promised")
	require.ErrorContains(t, found("c nil", 44*time.Second), "has never been c nil", "nil 2 was promised")
}

// The counts in the replies are a lower bound, and the number of calls is an upper bound.
func TestTheCheckerCountsSharedSteps(t *testing.T) {
	s := shared{name: "shared", start: 5, sent: 4, view: func(n int) view { return view{text: string(rune('0' + n))} },
		answered: map[int]time.Duration{6: 10, 8: 20}}
	for found := '5'; found <= '9'; found++ {
		require.NoError(t, s.check(view{text: string(found)}, 9))
	}
	require.ErrorContains(t, s.check(view{text: "5"}, 10), "as after step 0 of 4, but step 1 was answered")
	require.ErrorContains(t, s.check(view{text: "7"}, always), "as after step 2 of 4, but step 3 was answered")
	require.Error(t, s.check(view{text: "4"}, 0))
	require.Error(t, s.check(view{text: ":"}, 0), "more than were sent")
}

// A swap may be on the disk without a later step in the databases, and a step without a later swap.
// No step may be lost or reach the other database, and no flushed key may return.
func TestTheCheckerFollowsSwaps(t *testing.T) {
	s := swapped{
		mappings: []mapping{{contents: [2]int{0, 1}}, {5, 6, [2]int{1, 0}}, {15, never, [2]int{2, 0}}},
		contents: []*history{
			{name: "first", steps: []step{{0, 0, view{text: "a a"}, false}, {1, 2, view{text: "b b"}, false},
				{10, 12, view{text: "c c"}, false}}},
			{name: "second", steps: []step{{0, 0, view{text: "x x"}, false}}},
			{name: "third", steps: []step{{15, 15, view{text: "nil nil"}, false}, {16, never, view{text: "d d"}, false}}},
		},
	}
	check := func(one, other string, promised time.Duration) error {
		return s.check([2]view{{text: one}, {text: other}}, promised)
	}
	require.NoError(t, check("a a", "x x", 0))
	require.NoError(t, check("x x", "b b", 6))
	require.NoError(t, check("x x", "c c", 12))
	require.NoError(t, check("nil nil", "c c", 12))
	require.NoError(t, check("d d", "b b", 6), "later steps do not depend on each other")
	require.Error(t, check("b b", "x x", 6), "the swap is lost")
	require.Error(t, check("x x", "b b", 12), "a step is lost")
	require.Error(t, check("b b", "b b", 0), "half a swap")
	require.Error(t, check("x x", "nil nil", 0), "a database is lost")
	require.Error(t, check("d nil", "c c", 0), "half a step")
}

// A DEL is one step on both keys of a standing only if it removes both. Otherwise a pass may have it
// without the step that removed the other key.
func TestDeletionOfOneKeyIsNotWhole(t *testing.T) {
	next := standings([]string{"p:{a}:standing", "p:{a}:fixed"})
	banned := standing{banned: true, level: 1}.String()
	for _, c := range []struct {
		state []string
		whole bool
	}{{[]string{banned, "0"}, true}, {[]string{absent, "0"}, false}, {[]string{banned, "2"}, false}} {
		r := rand.New(rand.NewPCG(1, 0))
		p := next(r, 1, c.state)
		for !strings.HasPrefix(p.calls[0], "DEL ") {
			p = next(r, 1, c.state)
		}
		assert.Equal(t, c.whole, p.whole, c.state)
	}
}
