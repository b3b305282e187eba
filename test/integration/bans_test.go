package integration

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// banning has policies that ban after the third refusal: one has a single limit, many has several.
const banning = `policies:
  one: {limits: [{throttle: {burst: 2, rate: 1/1000000s}}], ban: {after: 3, within: 1000000s, for: 100000000s}}
  many:
    limits: [{fixed: {limit: 1000, period: 1000000s}}, {throttle: {burst: 1000, rate: 1/1000000s}}]
    ban: {after: 3, within: 1000000s, for: 100000000s}
`

// withBans starts servers with these policies on a store.
func withBans(t *testing.T, store *peer.Server, count int) (clients []*redis.Client) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(banning), 0o600))
	for range count {
		clients = append(clients, onStore(t, store.Addr, "--policies", file))
	}
	return clients
}

var pipelines = regexp.MustCompile(`store_pipelines:(\d+)`)

// roundTrips returns how many pipelines a server has sent to its store.
func roundTrips(t *testing.T, c *redis.Client) int {
	found := pipelines.FindStringSubmatch(c.Info(inTime(t), "store").Val())
	require.NotNil(t, found)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// A call of CL.TAKE, or of CL.ALL with policies, is one round trip to the store: it reads the standings, decides
// all limits, and counts the refusal. The call is two round trips if the server does not know what the keys hold,
// or if the call has an ID.
func TestTakeIsOneRoundTrip(t *testing.T) {
	c := withBans(t, peer.StartStore(t), 1)[0]
	const calls = 50
	for _, test := range []struct {
		call string
		each int
	}{
		{"CL.TAKE user many", 1}, {"CL.TAKE user many 1 UPTO", 1}, {"CL.TAKE user many 0 PEEK", 1}, {"CL.TAKE user one", 1},
		{"CL.TAKE user many 1 LEAVE 1", 1}, {"CL.TAKE user many 1 WAIT 1", 1}, {"CL.TAKE user many 0 ID a", 2},
		{"CL.ALL 3 TAKE new many 1 TAKE new one 0 TAKE other many 1", 1},
	} {
		require.NoError(t, c.Do(inTime(t), wordsOf(test.call)...).Err()) // now the server knows what the keys hold
		before := roundTrips(t, c)
		for range calls {
			require.NoError(t, c.Do(inTime(t), wordsOf(test.call)...).Err())
		}
		require.Equal(t, calls*test.each, roundTrips(t, c)-before, test.call)
	}
}

// take makes a call of CL.TAKE, and returns limited and remaining, "ban" or "exempt".
func take(t *testing.T, c *redis.Client, subject, policy string) string {
	t.Helper()
	got, err := c.Do(inTime(t), "CL.TAKE", subject, policy).Int64Slice()
	require.NoError(t, err)
	switch {
	case got[1] == math.MaxInt64:
		return "exempt"
	case got[3] > 2_000_000:
		return "ban"
	}
	return fmt.Sprint(got[0], got[2])
}

// A ban or an exemption on one server applies to the next call on another server, although the other server
// remembers what the keys held before. All servers' refusals are counted together.
func TestBansHoldOnAllServersAtOnce(t *testing.T) {
	both := withBans(t, peer.StartStore(t), 2)
	for n, policy := range []string{"one", "many"} {
		here, there := both[n], both[1-n]
		administer := func(words ...any) { require.NoError(t, there.Do(inTime(t), words...).Err()) }
		allowed := take(t, here, "a", policy)
		require.Equal(t, "0", allowed[:1])
		administer("CL.BAN", "a", policy, 100_000_000)
		require.Equal(t, "ban", take(t, here, "a", policy))
		administer("CL.EXEMPT", "a", policy, 60)
		require.Equal(t, "exempt", take(t, here, "a", policy))
		administer("CL.PARDON", "a", policy)
		require.Equal(t, "exempt", take(t, here, "a", policy))
		administer("CL.EXEMPT", "a", policy, 0)
		require.NotEqual(t, allowed, take(t, here, "a", policy), "this call takes, and the calls before took nothing")
	}
	require.Equal(t, "0 1", take(t, both[0], "b", "one"))
	require.Equal(t, "0 0", take(t, both[1], "b", "one"))
	require.Equal(t, "1 0", take(t, both[0], "b", "one"))
	require.Equal(t, "1 0", take(t, both[1], "b", "one"))
	require.Equal(t, "ban", take(t, both[0], "b", "one"))
	require.Equal(t, "ban", take(t, both[1], "b", "one"))
}

// While the store accepts no more values, a call is refused even if its refusal cannot be counted.
func TestRefusalsThatTheStoreCannotCount(t *testing.T) {
	store := peer.StartStore(t)
	c := withBans(t, store, 1)[0]
	for _, want := range []string{"0 1", "0 0"} {
		require.Equal(t, want, take(t, c, "a", "one"))
	}
	peer.Ask(t, store.Addr, "config", "set", "maxmemory", "1")
	for range 4 {
		require.Equal(t, "1 0", take(t, c, "a", "one"))
	}
	require.ErrorContains(t, c.Do(inTime(t), "CL.TAKE", "new", "one").Err(), "OOM ")
	peer.Ask(t, store.Addr, "config", "set", "maxmemory", "0")
	for _, want := range []string{"1 0", "1 0", "ban"} {
		require.Equal(t, want, take(t, c, "a", "one"))
	}
}
