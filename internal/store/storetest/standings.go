package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

var standingCases = []testCase{
	{"standings", "a key holds the standing that EditStanding gave it, until that has no effect any more", standings},
	{"standings at once", "no concurrent EditStanding is lost", standingsAtOnce},
	{"notices of standings", "listeners are notified once of every EditStanding that changes something", standingNotices},
	{"no growth of standings", "without growth EditStanding changes what fits, and otherwise returns ErrFull and changes nothing",
		noGrowthOfStandings},
}

// banAfter returns the rule of a ban of a minute, twice as long each time, after so many refusals in
// a minute.
func banAfter(refusals int64) standing.Rule {
	limit, err := window.NewLimit(refusals-1, quota.Seconds(60))
	if err != nil {
		panic(err)
	}
	return standing.Rule{Refusals: limit, For: int64(time.Minute), Factor: 2, Max: int64(time.Hour)}
}

type standingEdit = func(now int64, s standing.State) standing.State

func (c *caller) standing(key string) standing.State {
	c.Helper()
	s, err := c.view.Standing(ctx, []byte(key))
	require.NoError(c, err)
	return s
}

// editStanding edits a key, and returns what the store keeps.
func (c *caller) editStanding(key string, edit standingEdit) (next standing.State) {
	c.Helper()
	err := c.view.EditStanding(ctx, []byte(key), func(now int64, s standing.State) standing.State {
		next = edit(now, s)
		return next
	})
	require.NoError(c, err)
	return next
}

func refusedBy(rule standing.Rule) standingEdit {
	return func(now int64, s standing.State) standing.State {
		s, _ = s.Refused(now, rule)
		return s
	}
}

func exemptFor(d time.Duration, reason string) standingEdit {
	return func(now int64, s standing.State) standing.State { return s.ExemptFor(now, int64(d), reason) }
}

func banFor(d time.Duration, reason string) standingEdit {
	return func(now int64, s standing.State) standing.State { return s.BanFor(now, int64(d), reason) }
}

func pardon(now int64, s standing.State) standing.State { return s.Pardon(now) }

// standings makes all kinds of edits, with reasons of all lengths and numbers of refusals, and compares what the
// store keeps with what the edits returned.
func standings(r *rig) {
	rule := banAfter(3)
	require.Zero(r, r.standing("key"))
	var kept standing.State
	keep := func(edit standingEdit) {
		r.Helper()
		want := edit(r.view.Now(), kept)
		kept = r.editStanding("key", edit)
		require.Equal(r, want, kept)
		require.Equal(r, kept, r.standing("key"))
		entry := store.Entry{}
		if kept.Expires() > 0 {
			entry = store.Entry{Kind: limit.Standing, Expires: kept.Expires()}
		}
		require.Equal(r, entry, r.lookup("key"))
	}
	for i := range 40 {
		r.clock.Advance(time.Second)
		r.view.Begin()
		reason := strings.Repeat("r", i*37%(standing.MaxReason+1))
		keep(refusedBy(rule))
		keep(banFor(time.Duration(i)*time.Minute, reason))
		keep(exemptFor(time.Duration(i%7)*time.Minute, reason))
		if i%9 == 8 {
			keep(pardon)
		}
	}
	keep(exemptFor(0, ""))
	keep(pardon)
	require.Zero(r, r.count("key"))
	for range standing.MaxExact {
		keep(refusedBy(banAfter(standing.MaxExact)))
	}
	require.Positive(r, kept.Ban.Until)
	keep(pardon)
	kept = r.editStanding("key", banFor(2*time.Minute, ""))
	kept = r.editStanding("key", exemptFor(time.Minute, "a short time"))
	r.clock.Advance(2*time.Minute - 1)
	r.view.Begin()
	require.Equal(r, kept, r.standing("key"))
	r.advanceTo(r.clock.Now() + 1)
	require.Zero(r, r.standing("key"))
	require.Equal(r, store.Entry{}, r.lookup("key"))
}

func standingsAtOnce(r *rig) {
	const callers, each = 8, 50
	rule := banAfter(callers*each + 1)
	var all sync.WaitGroup
	for range callers {
		c := r.another()
		all.Go(func() {
			for range each {
				_ = c.view.EditStanding(ctx, []byte("key"), refusedBy(rule))
			}
		})
	}
	all.Wait()
	require.Equal(r, int64(callers*each), r.standing("key").Refusals.Current)
	require.Positive(r, r.editStanding("key", refusedBy(rule)).Ban.Until)
}

func standingNotices(r *rig) {
	events := recordEvents(r)
	for i, step := range []struct {
		edit  standingEdit
		event []store.Event
	}{
		{pardon, nil},
		{banFor(time.Minute, ""), []store.Event{store.Created}},
		{banFor(time.Minute, ""), nil},
		{banFor(time.Minute, strings.Repeat("r", standing.MaxReason)), []store.Event{store.Changed}},
		{refusedBy(banAfter(3)), nil}, // a refusal during a ban does not count
		{exemptFor(time.Minute, ""), []store.Event{store.Changed}},
		{pardon, []store.Event{store.Changed}},
		{exemptFor(0, ""), []store.Event{store.Deleted}},
		{exemptFor(0, ""), nil},
	} {
		r.editStanding("key", step.edit)
		require.Equal(r, step.event, events("key"), "step %d", i)
	}
}

func noGrowthOfStandings(r *rig) {
	noGrowth := r.withoutGrowth()
	r.editStanding("key", banFor(time.Minute, strings.Repeat("r", standing.MaxReason)))
	before, h := r.state("key", "new"), r.listen()
	err := noGrowth.view.EditStanding(ctx, []byte("new"), banFor(time.Minute, ""))
	require.ErrorIs(r, err, store.ErrFull)
	require.Equal(r, before, r.state("key", "new"))
	require.Empty(r, h.events())
	noGrowth.editStanding("key", banFor(time.Hour, "shorter"))
	require.Equal(r, "shorter", r.standing("key").Ban.Reason)
	noGrowth.editStanding("key", pardon)
	require.Zero(r, r.count("key"))
}

// standingCalls returns calls on one key that require the key to hold a standing.
func (c *caller) standingCalls(key string) []func() error {
	name := []byte(key)
	edit := func(e standingEdit) func() error {
		return func() error { return c.view.EditStanding(ctx, name, e) }
	}
	return []func() error{
		func() error { _, err := c.view.Standing(ctx, name); return err },
		edit(banFor(time.Minute, "")), edit(exemptFor(time.Minute, "")), edit(pardon),
	}
}

// useStanding refuses a subject. The decision has only the time until nothing is remembered.
func (c *caller) useStanding(key string) quota.Decision {
	c.Helper()
	s := c.editStanding(key, refusedBy(banAfter(standing.MaxExact)))
	return quota.Decision{ResetAfter: s.Expires() - c.view.Now()}
}

// tracesOfStanding returns what is left of a standing that should not exist.
func (c *caller) tracesOfStanding(key string) (seen string) {
	c.Helper()
	if s := c.standing(key); s != (standing.State{}) {
		seen = fmt.Sprintf("%+v", s)
	}
	if err := c.view.EditStanding(ctx, []byte(key), pardon); err != nil {
		seen = errors.Join(errors.New(seen), err).Error()
	}
	return seen
}
