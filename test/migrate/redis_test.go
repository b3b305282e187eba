package migrate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/test/peer"
)

// The model replies as a redis-server does, and leaves the same keys behind. The test does not wait
// for expiry; it compares how an expiry is set, kept and removed.
func TestModelIsRedis(t *testing.T) {
	server := dial(t, &redis.Options{Addr: peer.StartRedis(t).Addr})
	for seed := range uint64(4) {
		require.NoError(t, server.FlushAll(ctx).Err())
		assert.Empty(t, disagreement(newPlace(t).redis(), server, program(seed)))
	}
}

// The test finds a model that takes an existing member for a new one.
func TestAWrongModelIsSeen(t *testing.T) {
	p := newPlace(t)
	right := p.model.table["zadd"]
	added := 0
	p.model.table["zadd"] = func(e *entry, now int64, words []string) any {
		added++
		return right(e, now, []string{words[0], words[1] + strconv.Itoa(added)})
	}
	server := dial(t, &redis.Options{Addr: peer.StartRedis(t).Addr})
	assert.Contains(t, disagreement(p.redis(), server, program(0)), "z")
}

// disagreement returns the first command to which two servers reply differently, or "".
func disagreement(one, other *redis.Client, program [][]any) string {
	for _, words := range program {
		a, b := saidTo(one, words), saidTo(other, words)
		if a != b {
			return fmt.Sprintf("%v: %s and %s", words, a, b)
		}
	}
	return ""
}

// saidTo returns a reply in a comparable form: the fields of a hash sorted, and of a TTL only
// whether there is one.
func saidTo(rdb *redis.Client, words []any) string {
	reply, err := rdb.Do(ctx, words...).Result()
	switch reply := reply.(type) {
	case []any:
		if words[0] == "HGETALL" {
			var fields []string
			for pair := range slices.Chunk(reply, 2) {
				fields = append(fields, fmt.Sprint(pair))
			}
			slices.Sort(fields)
			return fmt.Sprint(fields)
		}
	case int64:
		if words[0] == "TTL" && reply > 0 {
			return "runs"
		}
	}
	return fmt.Sprintf("%T %v %v", reply, reply, err)
}

// program returns random commands of every kind on a few keys. The first letter of a key is its
// kind.
func program(seed uint64) (all [][]any) {
	forms := strings.Split(`SET s 5|SET s 7 EX 1000|SET s 1 NX EX 1000|INCRBY s 3|INCRBY s -2|
		HSET h a 1|HSET h a 2 b 3|HGETALL h|HMGET h a b c|LPUSH l x y|LPUSH l z|RPOP l|RPOP l 2|LLEN l|
		ZADD z 10 a|ZADD z 20 a|ZADD z 20 b|ZADD z 30 c|ZREMRANGEBYSCORE z 0 10|ZREMRANGEBYSCORE z 0 20|ZCARD z|
		DEL *|EXISTS *|EXISTS *|EXPIRE * 1000|EXPIRE * 0|TTL *|TTL *`, "|")
	random := rand.New(rand.NewPCG(seed, 1))
	for range 1500 {
		words := []any{}
		for _, word := range strings.Fields(forms[random.IntN(len(forms))]) {
			words = append(words, word)
		}
		kind := words[1].(string)
		if kind == "*" {
			kind = []string{"s", "h", "l", "z"}[random.IntN(4)]
		}
		words[1] = kind + strconv.Itoa(random.IntN(2))
		all = append(all, words)
	}
	return all
}

// traffic is an old way, and calls for servers whose clock the test cannot move: the way passes the
// time as an argument, or nothing expires during the test.
type traffic struct {
	name  string
	way   oldWay
	calls []call
}

// unchanged are the old ways that run on cellserver unchanged.
func unchanged() []traffic {
	return []traffic{
		{"counter", oldCounter, at(0, ones(30)...)},
		{"incr", oldIncr, at(0, ones(30)...)},
		{"json", oldJSON, every(time.Second, 200)},
		{"spacing", oldSpacing(0), every(30*time.Millisecond, 340)},
		{"spacing, clocks apart", oldSpacing(10 * time.Second), afterOneFromTheFuture()},
		{"gate", oldGate, at(0, 1, 1, 1, 1, -1, 1, 1, -1, -1, 1)},
	}
}

// redisOnly are the old ways that need commands that cellserver does not have.
func redisOnly() []traffic {
	return []traffic{
		{"log", oldLog(1000 * time.Second), slowed(100, every(time.Second, 120))},
		{"log, once a minute", oldLog(1000 * time.Second), slowed(100, onceAMinute())},
		{"log, within a millisecond", oldLog(1000 * time.Second), every(50*time.Microsecond, 20)},
		{"hash", oldHash, every(time.Second, 300)},
		{"list", oldList(1), every(time.Second, 300)},
		{"list, two timers", oldList(2), every(time.Second, 300)},
		{"list, quantities", oldList(1), at(0, 8, 4, 2, -3, 3)},
		{"permits", oldPermits(0), twosIn190ms()},
		{"permits, clocks apart", oldPermits(2 * time.Second), ofEach(2, every(250*time.Millisecond, 80))},
	}
}

// oldGate enters, and leaves with a negative quantity.
func oldGate(rdb *redis.Client, _ func() int64) asks {
	g := gate{rdb, 3}
	return func(c call) bool {
		if c.quantity < 0 {
			g.leave("gate")
			return true
		}
		return g.enter("gate")
	}
}

// slowed returns the same calls with all times multiplied by factor. With a period that is
// multiplied too, a real server that gets the calls quickly does not see the period end.
func slowed(factor int, calls []call) []call {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].at *= time.Duration(factor)
	}
	return calls
}

// on returns, for each call, whether it was admitted.
func (tr traffic) on(rdb *redis.Client) (said []bool) {
	clock := store.NewStillClock(start)
	admits := tr.way(rdb, clock.Now)
	for _, c := range tr.calls {
		clock.Advance(time.Duration(start-clock.Now()) + c.at)
		said = append(said, admits(c))
	}
	return said
}

// The old ways whose commands cellserver has give the same results on it as on Redis.
func TestUnchangedOnCellserver(t *testing.T) {
	server := dial(t, &redis.Options{Addr: peer.StartRedis(t).Addr})
	built := dial(t, &redis.Options{Addr: peer.Start(t).Addr})
	for _, tr := range unchanged() {
		require.NoError(t, server.FlushAll(ctx).Err())
		require.NoError(t, built.FlushAll(ctx).Err())
		want := tr.on(server)
		assert.Contains(t, want, true, tr.name)
		assert.Contains(t, want, false, tr.name)
		assert.Equal(t, want, tr.on(built), "%s, cellserver as it is built", tr.name)
		assert.Equal(t, want, tr.on(newPlace(t).cellserver()), "%s, in process", tr.name)
	}
}

// The other old ways give the same results on the model as on Redis.
func TestOldWaysOnRedis(t *testing.T) {
	server := dial(t, &redis.Options{Addr: peer.StartRedis(t).Addr})
	for _, tr := range redisOnly() {
		require.NoError(t, server.FlushAll(ctx).Err())
		want := tr.on(server)
		assert.Contains(t, want, true, tr.name)
		assert.Equal(t, want, tr.on(newPlace(t).redis()), tr.name)
	}
}
