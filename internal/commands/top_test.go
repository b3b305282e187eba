package commands

import (
	"bytes"
	"fmt"
	"math/rand"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var topLine = regexp.MustCompile(`\["([^"]*)", (\d+), (\d+)\]`)

type topKey struct{ count, off int64 }

func (s *still) topOf(t *testing.T, c *caller, line string) (keys map[string]topKey) {
	t.Helper()
	require.NoError(t, c.Send([]byte(line+"\r\n")))
	reply, err := c.Receive(time.Minute)
	require.NoError(t, err)
	keys = map[string]topKey{}
	for _, found := range topLine.FindAllStringSubmatch(reply, -1) {
		count, _ := strconv.ParseInt(found[2], 10, 64)
		off, _ := strconv.ParseInt(found[3], 10, 64)
		keys[found[1]] = topKey{count, off}
	}
	return keys
}

// feed makes calls of CL.THROTTLE that arrive together, 64 at a time.
func (c *caller) feed(keys []string) {
	var batch bytes.Buffer
	for i, key := range keys {
		batch.Write(encode([]string{"CL.THROTTLE", key, "0", "1", "60"}))
		if i%64 == 63 || i == len(keys)-1 {
			c.session.Feed(batch.Bytes())
			for c.session.Owing() {
				c.session.Resume()
			}
			c.session.Sent()
			batch.Reset()
		}
	}
}

// Of many calls few are counted, and the list is right within what it says of itself: here 150,000 by three clients, on keys
// as people use them.
func TestTopOfManyCalls(t *testing.T) {
	s := newStill(t)
	zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, 100_000)
	exact := map[string]int64{}
	for range 3 {
		c := s.dial()
		for range 5 {
			keys := make([]string, 10_000)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", zipf.Uint64())
				exact[keys[i]]++
			}
			c.feed(keys)
		}
	}
	c := s.dial()
	for line, once := range map[string]int64{"CL.TOP SEEN 20": 0, "CL.TOP 20": 1} { // each key was allowed once
		top := s.topOf(t, c, line)
		require.Len(t, top, 20)
		wrong := 0
		for key, said := range top {
			if off := exact[key] - once - said.count; max(off, -off) > said.off {
				wrong++
			}
		}
		require.LessOrEqual(t, wrong, 3, "one in twenty may be: %v", top)
		for n := range 8 {
			require.Contains(t, top, fmt.Sprint("user:", n), line)
		}
	}
}

// A client that always does the same is counted fairly: of two keys by turns each is seen as often.
func TestTopOfCallsByTurns(t *testing.T) {
	s := newStill(t)
	c := s.dial()
	for range 5 {
		var keys []string
		for range 10_000 {
			keys = append(keys, "even", "odd")
		}
		c.feed(keys)
	}
	top := s.topOf(t, c, "CL.TOP SEEN")
	for _, key := range []string{"even", "odd"} {
		require.InDelta(t, 50_000, top[key].count, float64(2*top[key].off), "%v", top)
		require.Less(t, top[key].off, int64(15_000))
	}
}

// After a rush a slow client's calls are counted one by one again, as soon as the next ten seconds begin.
func TestTopAfterARush(t *testing.T) {
	s := newStill(t)
	c := s.dial()
	keys := make([]string, 50_000)
	for i := range keys {
		keys[i] = "rush"
	}
	c.feed(keys)
	s.clock.Advance(10 * time.Second)
	for range 3 {
		c.say(t, "CL.THROTTLE slow 10 1 60")
	}
	require.Equal(t, topKey{3, 0}, s.topOf(t, c, "CL.TOP SEEN")["slow"])
	s.clock.Advance(time.Minute)
	require.Empty(t, s.topOf(t, c, "CL.TOP SEEN"))
}
