package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// below is a time that counts down from the creation of the key. A reply may show a lower number, but only by the
// duration of the test.
type below int64

// limiterCalls are made in order. Their periods are thousands of seconds long, so that nothing
// comes back during the test.
var limiterCalls = []struct {
	call string
	want any
}{
	{"CL.FIXED fixed 3 1000 2", all(0, 3, 1, -1, below(1000))},
	{"CL.FIXED fixed 3 1000 2", all(1, 3, 1, below(1000), below(1000))},
	{"CL.FIXED fixed 3 1000 2 UPTO MS", all(0, 3, 0, -1, below(1000000), 1)},
	{"CL.FIXED fixed 3 1000 2 FORCE", all(1, 3, 0, below(1000), below(1000))},
	{"CL.FIXED fixed 3 1000 -9", all(0, 3, 3, -1, 0)},
	{"CL.SLIDING sliding 4 1000 3", all(0, 4, 1, -1, below(2000))},
	{"CL.SLIDING sliding 4 1000 2 PEEK", all(1, 4, 1, below(1334), below(2000))}, // 2000 - 2 * 1000 / 3
	{"CL.SLIDING sliding 4 1000 5", all(1, 4, 1, -1, below(2000))},
	{"CL.SLIDINGLOG log 5 1000 5", all(0, 5, 0, -1, below(1000))},
	{"CL.SLIDINGLOG log 5 1000", all(1, 5, 0, below(1000), below(1000))},
	{"CL.SLIDINGLOG log 100001 1000",
		refused("ERR limit must be between 0 and 100000 (max-log-limit); larger limits are for CL.SLIDING")},
	{"CL.FIXED log 5 1000", refused("WRONGTYPE Operation against a key holding the wrong kind of value")},
	{"GCRA tokens 9 10 1000.0 TOKENS 4", all(0, 10, 6, -1, below(400))},
	{"CL.THROTTLE tokens 9 10 1000 7", all(1, 10, 6, below(100), below(400))},
	{"GCRA tokens 9 10 0", refused("ERR period must be > 0 and < 1e12")},

	{"CL.ACQUIRE jobs 2 1000 one", all(0, 2, 1, -1, below(1000))},
	{"CL.ACQUIRE jobs 2 2000 two", all(0, 2, 0, -1, below(2000))},
	{"CL.ACQUIRE jobs 2 1000 three", all(1, 2, 0, below(1000), below(2000))},
	{"CL.HOLDERS jobs", all(all("one", 1, below(1000000)), all("two", 1, below(2000000)))},
	{"CL.RENEW jobs 3000 one", 1},
	{"CL.RENEW jobs 3000 three", 0},
	{"CL.HOLDERS jobs", all(all("two", 1, below(2000000)), all("one", 1, below(3000000)))},
	{"CL.RELEASE jobs two", 1},
	{"CL.RELEASE jobs two", 0},
	{"CL.ACQUIRE jobs 2 1000 three", all(0, 2, 0, -1, below(3000))},
	{"CL.HOLDERS nobody", all()},

	{"CL.ALL 2 THROTTLE u 9 10 1000 1 FIXED u:day 2 86400 1",
		all(0, -1, all(0, 10, 9, -1, below(100)), all(0, 2, 1, -1, below(86400)))},
	{"CL.ALL 2 THROTTLE u 9 10 1000 1 FIXED u:day 2 86400 2",
		all(1, below(86400), all(0, 10, 9, -1, below(100)), all(1, 2, 1, below(86400), below(86400)))},
	{"CL.ALL 2 SLIDING s 5 1000 6 SLIDINGLOG l 5 1000 5", all(1, -1, all(1, 5, 5, -1, 0), all(0, 5, 5, -1, 0))},
	{"CL.ALL 2 FIXED s 5 1000 1 FIXED s 5 1000 1", refused("ERR CL.ALL takes a key once")},
	{"EXISTS s l", 0},
	{"TYPE jobs", "cl.lease"},
}

// refused is the text of an error.
type refused string

func all(elements ...any) []any { return append([]any{}, elements...) }

func TestLimiters(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		for _, of := range limiterCalls {
			reply, err := c.Do(inTime(t), wordsOf(of.call)...).Result()
			differ(t, of.call, of.want, reply, err)
		}
	})
}

func TestLimitersInAPipeline(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		replies, _ := c.Pipelined(inTime(t), func(p redis.Pipeliner) error {
			for _, of := range limiterCalls {
				p.Do(inTime(t), wordsOf(of.call)...)
			}
			return nil
		})
		require.Len(t, replies, len(limiterCalls))
		for i, of := range limiterCalls {
			reply, err := replies[i].(*redis.Cmd).Result()
			differ(t, of.call, of.want, reply, err)
		}
	})
}

// When many clients ask for a permit at once, exactly as many get one as there are permits.
func TestLeasesOfManyClients(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		const workers, permits = 8, 3
		granted := make(chan string, workers)
		for i := range workers {
			go func() {
				name := fmt.Sprint("worker-", i)
				reply, err := c.Do(inTime(t), "CL.ACQUIRE", "jobs", permits, 1000, name).Int64Slice()
				if err != nil || reply[0] != 0 {
					name = ""
				}
				granted <- name
			}()
		}
		var holders []string
		for range workers {
			if name := <-granted; name != "" {
				holders = append(holders, name)
			}
		}
		require.Len(t, holders, permits)
		for _, name := range holders {
			released, err := c.Do(inTime(t), "CL.RELEASE", "jobs", name).Int64()
			require.NoError(t, err)
			assert.EqualValues(t, 1, released)
		}
		assert.Zero(t, c.Exists(inTime(t), "jobs").Val())
	})
}

func wordsOf(call string) (words []any) {
	for _, word := range strings.Fields(call) {
		words = append(words, word)
	}
	return words
}

func differ(t *testing.T, call string, want, got any, err error) {
	t.Helper()
	if text, ok := want.(refused); ok {
		assert.EqualError(t, err, string(text), call)
		return
	}
	require.NoError(t, err, call)
	assert.NoError(t, same(want, got), "%s: %v", call, got)
}

// same compares a reply with the wanted one, element by element.
func same(want, got any) error {
	switch want := want.(type) {
	case []any:
		elements, ok := got.([]any)
		if !ok || len(elements) != len(want) {
			return fmt.Errorf("want %v, got %v", want, got)
		}
		for i := range want {
			if err := same(want[i], elements[i]); err != nil {
				return err
			}
		}
		return nil
	case below:
		unit := int64(1)
		if want >= 1000000 { // a time of thousands of seconds, in milliseconds
			unit = 1000
		}
		n, ok := got.(int64)
		if !ok || n > int64(want) || n < int64(want)-unit*int64(patience.Seconds()) {
			return fmt.Errorf("want %d or a little less, got %v", want, got)
		}
		return nil
	case int:
		return same(int64(want), got)
	}
	if want != got {
		return fmt.Errorf("want %v, got %v", want, got)
	}
	return nil
}

func TestWrongRepliesAreFound(t *testing.T) {
	want := all(1, below(1000), all("a", below(2000000)))
	require.NoError(t, same(want, all(int64(1), int64(999), all("a", int64(1999000)))))
	for _, wrong := range []any{
		nil, int64(1), all(), all(int64(1), int64(999)),
		all("1", int64(999), all("a", int64(1999000))), all(int64(0), int64(999), all("a", int64(1999000))),
		all(int64(1), int64(1001), all("a", int64(1999000))), all(int64(1), int64(900), all("a", int64(1999000))),
		all(int64(1), int64(999), all("b", int64(1999000))), all(int64(1), int64(999), all("a", int64(1900000))),
	} {
		assert.Error(t, same(want, wrong), "%v", wrong)
	}
}
