package exactness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// told returns a call that was sent at a second, and answered a second later.
func told(second int, o outcome, asked, taken, remaining int64) call {
	sent := time.Duration(second) * time.Second
	return call{asked: asked, sent: sent, returned: sent + time.Second, outcome: o, taken: taken, remaining: remaining}
}

// of returns the history of a limit of three tokens, which gets one back every ten seconds.
func of(calls ...call) *history {
	return &history{limit: &limit{"CL.THROTTLE", "k", 3, 10 * time.Second}, calls: calls}
}

// after returns the calls that take all three tokens, followed by calls.
func after(calls ...call) []call {
	return append([]call{told(0, allowed, 1, 1, 2), told(2, allowed, 1, 1, 1), told(4, allowed, 1, 1, 0)}, calls...)
}

// The checker accepts correct histories, and finds planted faults.
func TestTheCheckerFindsPlantedFaults(t *testing.T) {
	for name, test := range map[string]struct {
		says  string
		calls []call
	}{
		"right": {"", after(told(6, limited, 1, 0, 0), told(10, allowed, 1, 1, 0),
			told(40, allowed, 3, 3, 0))},
		"a token comes back too early":  {"4 were admitted", after(told(6, allowed, 1, 1, 0))},
		"the limit is free again":       {"4 were admitted", after(told(6, allowed, 1, 1, 2))},
		"an admission is lost":          {"at least 2", []call{told(0, allowed, 1, 1, 2), told(2, allowed, 1, 1, 2)}},
		"an admission is counted twice": {"no calls", []call{told(0, allowed, 1, 1, 1)}},
		"limited without a reason":      {"1 are left", []call{told(0, allowed, 2, 2, 1), told(2, limited, 1, 0, 1)}},
		"limited for too long":          {"no calls", after(told(31, limited, 2, 0, 1))},
		"a read is stale":               {"at least 3", after(told(6, allowed, 0, 0, 1))},
		"a read is of the future":       {"no calls", []call{told(0, allowed, 0, 0, 2), told(2, allowed, 1, 1, 2)}},
		"tokens are given back":         {"", after(told(6, allowed, -2, -2, 2), told(8, allowed, 1, 1, 1))},
		"tokens are given back twice":   {"at least 2", after(told(6, allowed, -1, -1, 2))},
		"what was given back is lost":   {"no calls", after(told(6, allowed, -1, -1, 1), told(9, limited, 1, 0, 0))},
		"unsure, and counted":           {"", []call{told(0, unsure, 1, 0, 0), told(2, allowed, 1, 1, 1)}},
		"unsure, and not counted":       {"", []call{told(0, unsure, 1, 0, 0), told(2, allowed, 1, 1, 2)}},
		"unsure, and counted later": {"", []call{told(0, unsure, 1, 0, 0), told(2, allowed, 1, 1, 2),
			told(4, allowed, 0, 0, 1)}},
		"unsure, and counted twice":       {"no calls", []call{told(0, unsure, 1, 0, 0), told(2, allowed, 1, 1, 0)}},
		"unsure, and perhaps given back":  {"", after(told(6, unsure, -1, 0, 0), told(7, allowed, 1, 1, 0))},
		"unsure, and given back twice":    {"4 were", after(told(6, unsure, -1, 0, 0), told(7, allowed, 2, 2, 0))},
		"a part of a token is given back": {"", []call{told(0, allowed, 1, 1, 2), told(4, allowed, -1, 0, 3)}},
	} {
		err := of(test.calls...).check()
		if test.says == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, test.says, name)
		}
	}
}

// A failover may forget what the replica has not received, and nothing else.
func TestTheCheckerKnowsWhatAFailoverForgets(t *testing.T) {
	lost := &failover{kept: 2500 * time.Millisecond, killed: 6 * time.Second, ended: 6 * time.Second}
	for name, test := range map[string]struct {
		says  string
		calls []call
	}{
		"the last call is forgotten":          {"", after(told(7, allowed, 1, 1, 0))},
		"two calls are forgotten":             {"", after(told(7, allowed, 2, 2, 0))},
		"what was kept is forgotten":          {"4 were", after(told(7, allowed, 3, 3, 0))},
		"what was kept is shown as forgotten": {"at least 1", after(told(7, allowed, 0, 0, 3))},
		"nothing is forgotten":                {"", after(told(7, limited, 1, 0, 0))},
		"too much before the failover":        {"before the failover: k: 4 were", after(told(5, allowed, 1, 1, 0))},
		"too much after the failover":         {"4 were", after(told(7, allowed, 2, 2, 0), told(8, allowed, 1, 1, 0))},
		"forgotten before the failover":       {"at least 3", after(told(5, allowed, 0, 0, 1))},
		"what was given back is forgotten":    {"", after(told(5, allowed, -1, -1, 1), told(7, limited, 1, 0, 0))},
	} {
		h := of(test.calls...)
		h.lost = lost
		if err := h.check(); test.says == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, test.says, name)
		}
	}
}

// Faults that are planted in the store, while servers use it, are found: tokens that are taken or given
// back without a call in the histories, a key that is lost, and an old value that is there again.
func TestFaultsOfTheStoreAreFound(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	all := limits(0)
	for i := throttle; i <= slidingLog; i++ {
		all[i].size = 4000 // more than the clients take
	}
	l := startLoad(t, "redis://"+store.Addr, all, "--store-timeout", "30000")
	old := stored(t, store, "log")
	for _, i := range []int{throttle, fixed, sliding, slidingLog} {
		l.progress(i, 50)
	}
	other := peer.Start(t, "--store", "redis://"+store.Addr, "--store-timeout", "30000")
	client := connect(other)
	defer client.Close()
	require.NoError(t, client.Do(t.Context(), all[throttle].take(20, "", "")...).Err())
	require.NoError(t, client.Do(t.Context(), all[sliding].take(-20, "", "")...).Err())
	peer.Ask(t, store.Addr, "del", "fixed")
	peer.Ask(t, store.Addr, "set", "log", old, "keepttl")
	l.progress(hot, 200)
	histories := l.finish()
	assert.ErrorContains(t, histories[throttle].check(), "no calls can have taken so many")
	for _, i := range []int{fixed, sliding, slidingLog} {
		assert.ErrorContains(t, histories[i].check(), "were taken")
	}
	assert.NoError(t, histories[hot].check())
	assert.NoError(t, histories[leases].check())
}

// stored waits until a key is in the store, and returns what it holds. A decision alone does not prove that
// the key is there: the call may have taken nothing, or given everything back.
func stored(t *testing.T, store *peer.Server, key string) (held any) {
	t.Helper()
	peer.Until(t, "the key "+key, func() bool {
		held = peer.Ask(t, store.Addr, "get", key)
		return held != nil
	})
	return held
}

// Just after a limit was free, a server whose clock is behind another server's sees a part of a token
// missing that nobody took. A server whose clock is ahead sees a token come back early.
func TestTheCheckerKnowsThatClocksAreWrong(t *testing.T) {
	for name, test := range map[string]struct {
		right bool
		wrong time.Duration
		calls []call
	}{
		"behind":          {true, 2 * time.Second, []call{told(0, allowed, 1, 1, 2), told(3, allowed, 1, 1, 0)}},
		"less behind":     {false, 500 * time.Millisecond, []call{told(0, allowed, 1, 1, 2), told(3, allowed, 1, 1, 0)}},
		"two missing":     {false, 2 * time.Second, []call{told(0, allowed, 1, 1, 2), told(3, limited, 2, 0, 0)}},
		"ahead":           {true, 2 * time.Second, after(told(6, allowed, 1, 1, 0))},
		"less ahead":      {false, time.Second, after(told(6, allowed, 1, 1, 0))},
		"none comes back": {false, time.Second, []call{told(0, allowed, 1, 1, 2), told(20, allowed, 0, 0, 1)}},
	} {
		h := of(test.calls...)
		h.wrong = test.wrong
		assert.Equal(t, test.right, h.check() == nil, name)
	}
}
