package memory

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// answers are requests under way, by the instant at which their answers are complete.
type answers []answer

type answer struct {
	at     int64
	id     string
	actual int64
}

func (a answers) Len() int           { return len(a) }
func (a answers) Less(i, j int) bool { return a[i].at < a[j].at }
func (a answers) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *answers) Push(x any)        { *a = append(*a, x.(answer)) }

func (a *answers) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// saturate plays requests that keep a limit of 100,000 tokens a minute busy for an hour, with estimates that are ten
// times too high. It returns the part of the limit that was really used, and checks that the use never exceeds the
// limit.
func saturate(t *testing.T, rule limit.Rule, shortest, longest time.Duration) float64 {
	const perMinute, estimate = 100_000, 10
	r, random := newHoldRig(t, Options{Databases: 1}), rand.New(rand.NewPCG(1, 2))
	began, used := r.clock.Now(), int64(0)
	var under answers
	const minutes = 60
	warm := began + int64(5*time.Minute)
	end := warm + minutes*int64(time.Minute)
	for n := 0; r.clock.Now() < end; n++ {
		for len(under) > 0 && under[0].at <= r.clock.Now() {
			a := heap.Pop(&under).(answer)
			_, err := r.settle("key", a.id, rule, a.actual)
			require.NoError(t, err)
			if a.at >= warm {
				used += a.actual
			}
		}
		actual := 100 + random.Int64N(201)
		if id := fmt.Sprint(n); r.holdAll("key", id, rule, actual*estimate) {
			took := shortest + time.Duration(random.Int64N(int64(longest-shortest)+1))
			heap.Push(&under, answer{r.clock.Now() + int64(took), id, actual})
		}
		r.clock.Advance(20 * time.Millisecond)
	}
	const most = float64(perMinute * minutes)
	require.Less(t, float64(used), most+perMinute, "more is used than the limit allows")
	return float64(used) / most
}

// holdAll holds a quantity, or nothing, and reports whether it was allowed.
func (r *holdRig) holdAll(key, id string, rule limit.Rule, quantity int64) bool {
	r.view.Begin()
	requests := []store.LimitRequest{{Key: []byte(key), Rule: rule, Quantity: quantity, Held: true}}
	decisions, repeated, err := r.view.Once(background, &store.Once{
		Keys: [][]byte{[]byte(key)}, HoldTime: time.Hour,
		Token: store.Token{ID: []byte(id), Words: [16]byte{byte(quantity)}, TTL: time.Second},
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			return v.TakeAll(background, requests, quota.Take)
		},
	})
	require.NoError(r, err)
	require.False(r, repeated)
	return !decisions[0].Limited
}

// With estimates that are ten times too high, at least 95 % of a limit is used if its burst covers the excess
// of the estimates: (10 - 1) x 1,667 tokens a second x the mean time of an answer.
func TestShareThatIsUsed(t *testing.T) {
	racetest.HasOneGoroutine(t)
	bucket, err := gcra.NewLimit(99_999, 100_000, quota.Seconds(60))
	require.NoError(t, err)
	sliding, err := window.NewLimit(100_000, quota.Seconds(60))
	require.NoError(t, err)
	throttle := limit.Rule{Kind: limit.Throttle, Throttle: bucket}
	windowed := limit.Rule{Kind: limit.Sliding, Window: sliding}
	for _, c := range []struct {
		rule              limit.Rule
		shortest, longest time.Duration
		least             float64
	}{
		{throttle, time.Second, time.Second, 0.95},
		{throttle, time.Second, 10 * time.Second, 0.95},
		{windowed, time.Second, time.Second, 0.95 / (1 + 9.0/60)},
		{windowed, time.Second, 10 * time.Second, 0.95 / (1 + 9*5.5/60)},
	} {
		share := saturate(t, c.rule, c.shortest, c.longest)
		t.Logf("%s, answers of %v to %v: %.1f %% of the limit", c.rule.Kind, c.shortest, c.longest, 100*share)
		require.GreaterOrEqual(t, share, c.least)
	}
	t.Logf("%s, answers of 1s to 1m: %.1f %%", throttle.Kind, 100*saturate(t, throttle, time.Second, time.Minute))
}
