package exactness

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// outage is a server whose store is behind a proxy that makes it fail, with a policy for the calls
// that the store does not decide. One client makes all calls, so the test knows whether the store has
// decided a call, and how often the store has counted it.
type outage struct {
	t      *testing.T
	policy string
	front  *proxy.Proxy
	server *peer.Server
	client *redis.Client
	keys   map[string]*counted

	calls, answered int64 // all calls, and the calls that the policy has answered
}

// counted is how many calls must have been counted on a key.
type counted struct {
	least, most int64 // calls that the store has counted
	local       int64 // calls that the server has counted by itself since the store's last decision
}

// decided checks and notes how many calls the store has counted, including the call that was just
// decided.
func (c *counted) decided(used int64) error {
	before := *c
	*c = counted{least: used, most: used}
	if used <= before.least || used > before.most+1 {
		return fmt.Errorf("%d are counted in place of %d to %d", used, before.least+1, before.most+1)
	}
	return nil
}

// The test finds a call that is wrongly not counted, and a call that is wrongly counted.
func TestWrongCountsAreFound(t *testing.T) {
	for used, right := range []bool{3: false, 4: true, 5: true, 6: false} {
		c := counted{least: 3, most: 4}
		assert.Equal(t, right, c.decided(int64(used)) == nil, used)
	}
}

// size is the limit, which is larger than the number of calls.
const size = 1000

// counters are the fields of INFO that count the replies of the policies.
var counters = map[string]string{"error": "errors", "allow": "allowed", "deny": "limited", "local": "local"}

func newOutage(t *testing.T, store *peer.Server, policy string) *outage {
	o := &outage{t: t, policy: policy, front: proxy.New(t, store.Addr), keys: map[string]*counted{}}
	o.server = peer.Start(t, "--store", "redis://"+o.front.Addr, "--store-prefix", policy+":", "--store-fails", policy,
		"--store-timeout", "500", "--loglevel", "nothing")
	o.client = connect(o.server)
	t.Cleanup(func() { o.client.Close() })
	return o
}

// key returns how many calls must have been counted on a key.
func (o *outage) key(name string) *counted {
	if o.keys[name] == nil {
		o.keys[name] = &counted{}
	}
	return o.keys[name]
}

// info returns a field of INFO.
func (o *outage) info(field string) int64 {
	o.t.Helper()
	text := o.client.Info(o.t.Context(), "store").Val()
	found := regexp.MustCompile(field + `:(\d+)`).FindStringSubmatch(text)
	require.NotNil(o.t, found, field)
	n, err := strconv.ParseInt(found[1], 10, 64)
	require.NoError(o.t, err)
	return n
}

// decide makes a call, and checks the reply. It reports whether the store has decided.
func (o *outage) decide(name string) (byStore bool) {
	o.t.Helper()
	before := o.info("store_decisions_" + counters[o.policy])
	got, err := o.client.Do(o.t.Context(), "CL.FIXED", name, size, long).Int64Slice()
	o.calls++
	key := o.key(name)
	if o.info("store_decisions_"+counters[o.policy]) == before {
		require.NoError(o.t, err)
		require.Zero(o.t, got[0])
		assert.NoError(o.t, key.decided(size-got[2]), name)
		return true
	}
	o.answered++
	o.checkPolicy(key, got, err)
	return false
}

// checkPolicy checks the reply to a call that the store has not decided. Only with the policy error
// does the reply say whether the call may have been counted.
func (o *outage) checkPolicy(key *counted, got []int64, err error) {
	o.t.Helper()
	key.most++
	switch o.policy {
	case "error":
		require.Error(o.t, err)
		if strings.HasPrefix(err.Error(), "STOREDOWN ") {
			key.most--
			return
		}
		require.ErrorContains(o.t, err, "STOREUNSURE ")
		return
	case "local":
		key.local++
		got, want := got[:4], []int64{0, size, size - key.local, -1}
		require.Equal(o.t, want, got)
	case "allow":
		require.Equal(o.t, []int64{0, size, 0, -1, 0}, got)
	case "deny":
		require.Equal(o.t, []int64{1, size, 0, 1, 1}, got)
	}
	require.NoError(o.t, err)
}

// recover waits until the store decides about a key.
func (o *outage) recover(name string) {
	o.t.Helper()
	peer.Until(o.t, "a decision of the store", func() bool { return o.decide(name) })
}

// strike makes calls until a fault has happened to one of them and the policy has answered it. The
// server knows the key's value, so a call sends the store a single command, which counts it.
func (o *outage) strike(fault proxy.Fault, counts int64) {
	o.t.Helper()
	for range 100 {
		o.recover("k")
		key := o.key("k")
		least, most := key.least, key.most
		struck := o.front.Arm(fault, o.policy+":k", 0)
		byStore := o.decide("k")
		select {
		case <-struck:
			if byStore {
				continue // the fault has happened to a read, which the server sent again
			}
			key.least, key.most = least+counts, most+counts
			return
		default: // the machine is slow, and the call was not sent in time
		}
	}
	require.Fail(o.t, "the fault has not happened")
}

// Each of the four policies answers calls as it should while the store is slow, loses requests and replies, is
// stalled, stopped and unreachable. The store decides again when each fault has ended.
func TestPoliciesWhileTheStoreFails(t *testing.T) {
	for policy := range counters {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			store := peer.StartStore(t)
			o := newOutage(t, store, policy)
			o.recover("k")
			o.front.SetDelay(5 * time.Millisecond)
			o.recover("k")
			o.front.SetDelay(0)
			o.strike(proxy.LoseReply, 1)
			o.strike(proxy.TearReply, 1)
			o.strike(proxy.LoseRequest, 0)
			o.recover("k")
			o.silence(o.front.Stall(), "cold")
			store.Signal(syscall.SIGSTOP)
			o.silence(func() { store.Signal(syscall.SIGCONT) }, "colder")
			o.refuse(store.Addr)
			o.checkCounters()
		})
	}
}

// silence makes two calls while the store does not reply. Both can be counted, the second only if a connection is idle.
func (o *outage) silence(resume func(), cold string) {
	o.t.Helper()
	require.False(o.t, o.decide("k"))
	require.False(o.t, o.decide(cold))
	resume()
	o.recover("k")
	o.recover(cold)
}

// refuse makes calls while no connection can be opened. Nothing is counted, and calls that are not
// decisions get an error with every policy.
func (o *outage) refuse(addr string) {
	o.t.Helper()
	o.recover("k")
	before := *o.key("k")
	o.front.SetTarget("")
	o.front.Cut()
	for range 5 {
		require.False(o.t, o.decide("k"))
	}
	assert.Equal(o.t, int64(1), o.info("store_failing"))
	ctx := o.t.Context()
	for _, words := range [][]any{{"SET", "v", "1"}, {"CL.ACQUIRE", "lease", 1, 60, "holder"}} {
		require.ErrorContains(o.t, o.client.Do(ctx, words...).Err(), "STOREDOWN ", "%v", words)
	}
	_, err := o.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		return p.Do(ctx, "CL.FIXED", "k", size, long).Err()
	})
	require.ErrorContains(o.t, err, "STOREDOWN ")
	o.key("k").least, o.key("k").most = before.least, before.most
	o.front.SetTarget(addr)
	o.recover("k")
	peer.Until(o.t, "a lease", func() bool {
		return o.client.Do(ctx, "CL.ACQUIRE", "lease", 1, 60, "other").Err() == nil
	})
}

// checkCounters compares INFO with what the client has seen.
func (o *outage) checkCounters() {
	for policy, field := range counters {
		want := int64(0)
		if policy == o.policy {
			want = o.answered
		}
		assert.Equal(o.t, want, o.info("store_decisions_"+field), field)
	}
	peer.Until(o.t, "the end of all steps", func() bool { return o.info("store_steps_waiting") == 0 })
	assert.GreaterOrEqual(o.t, o.info("store_steps"), o.calls)
	o.t.Logf("%d calls, %d of them answered by the policy", o.calls, o.answered)
}
