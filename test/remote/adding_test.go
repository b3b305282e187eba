package remote

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store/remote/adding"
	"cellserver/internal/store/remote/ahead"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/window"
	"cellserver/test/peer"
)

// script is a call of one of the store's scripts: a key's value before the call, and the steps to make on it.
type script struct {
	now     int64
	before  []byte // nil if the key does not exist
	calls   []combine.Adding
	words   string // for a message
	refused bool
}

// someRule returns a rule whose numbers are small, or of any size.
func someRule(r *rand.Rand) limit.Rule {
	for {
		n := func(most int64) int64 { return 1 + r.Int64N(int64(1)<<r.IntN(63)%most+1) }
		kinds := [...]limit.Kind{limit.Throttle, limit.Throttle, limit.Fixed, limit.Sliding, limit.Quota}
		rule := limit.Rule{Kind: kinds[r.IntN(len(kinds))]}
		var err error
		switch rule.Kind {
		case limit.Throttle:
			rule.Throttle, err = gcra.NewLimit(n(1<<40), n(1<<30), quota.Seconds(n(1<<20)))
		case limit.Quota:
			rule.Window, err = window.NewCalendarLimit(n(1 << 62))
			rule.Cycle = calendar.Every(time.Duration(n(1<<20)) * time.Second)
		default:
			rule.Window, err = window.NewLimit(n(1<<62), quota.Seconds(n(1<<29)))
		}
		if err == nil {
			return rule
		}
	}
}

// someCalls returns calls that may be in one script. Together they ask for about as many tokens as
// the limit has.
func someCalls(r *rand.Rand, rule *limit.Rule, now int64) (calls []combine.Adding) {
	mode := quota.Take
	most := min(max(rule.Size()/int64(1+r.IntN(4)), 1)+1, 1_000_000)
	quantity := 1 + r.Int64N(most)
	for range 1 + r.IntN(6) {
		if r.IntN(3) == 0 {
			quantity = 1 + r.Int64N(most)
		}
		if mode = quota.Take; r.IntN(3) == 0 && rule.Kind != limit.Sliding {
			mode = quota.UpTo
		}
		c := new(adding.Call)
		if c.Set(rule, quantity, mode, 1e8) && c.Fits(append(calls, c)[0], now) {
			if mode == quota.Take && rule.Kind != limit.Sliding && r.IntN(4) == 0 {
				c.TakeAhead(ahead.Extra{Most: 1 + r.Int64N(min(most, 500_000)), Share: 1 + r.Int64N(4)})
			}
			calls = append(calls, c)
		}
	}
	return calls
}

// someScript returns a script that continues another with the same rule, or that begins with any
// value.
func someScript(r *rand.Rand, rule *limit.Rule, last *script) *script {
	s := &script{now: 1_800_000_000e9 + r.Int64N(1e18)}
	if last != nil {
		s.before, s.now = last.after(), last.now+r.Int64N(int64(1)<<r.IntN(44))-r.Int64N(int64(1)<<r.IntN(34))
	}
	if s.now > 6e18 {
		s.now = 1_800_000_000e9
	}
	switch r.IntN(40) {
	case 0:
		s.before = nil
	case 1:
		s.before = form.AppendTAT(nil, r.Int64N(int64(1)<<r.IntN(63)+1))
	case 2:
		odd := [...]string{"", "0", "-5", "12a", "99999999999999999999", "9223372036854775807", "\x00cl1f"}
		s.before = []byte(odd[r.IntN(len(odd))])
	case 3:
		if len(s.before) > 0 {
			s.before = bytes.Clone(s.before)
			s.before[r.IntN(len(s.before))] ^= 1 << r.IntN(8)
		}
	}
	s.calls = someCalls(r, rule, s.now)
	s.words = fmt.Sprintf("%+v", *rule)
	return s
}

// after returns the key's value after the script, by the definition of the limiters.
func (s *script) after() []byte {
	v := combine.Value{Bytes: s.before}
	for _, c := range s.calls {
		v = c.Apply(s.now, v)
	}
	return v.Bytes
}

// check compares a server's reply and the key's value with the definition. A script may leave the step to the
// process, which then computes it from the value.
func (s *script) check(reply any, held []byte) error {
	same := func(v any, want []byte) bool {
		text, ok := v.(string)
		return ok == (want != nil) && text == string(want)
	}
	if refused, ok := reply.([]any); ok && len(refused) == 1 {
		if !same(refused[0], s.before) || !bytes.Equal(held, s.before) {
			return fmt.Errorf("refused %q, and the key holds %q", refused[0], held)
		}
		return nil
	}
	if want := s.after(); !same(reply, s.before) || !bytes.Equal(held, want) || (held == nil) != (want == nil) {
		return fmt.Errorf("%s, %+v at %d on %q: %q, want %q, reply %q", s.words, s.calls, s.now, s.before, held, want, reply)
	}
	return nil
}

// scriptRun runs scripts on a server, and compares the results with the definition of the limiters.
type scriptRun struct {
	client  *redis.Client
	steps   int
	refused int
	changed int
}

// batch runs many scripts at once, each on its own key.
func (run *scriptRun) batch(t *testing.T, scripts []*script) error {
	pipe := run.client.Pipeline()
	var replies, held []*redis.Cmd
	for i, s := range scripts {
		key := fmt.Sprint("k", i)
		pipe.Del(t.Context(), key)
		if s.before != nil {
			pipe.Set(t.Context(), key, s.before, 0)
		}
		replies = append(replies, pipe.Do(t.Context(), adding.AppendCommand(nil, key, "", s.now, s.calls)...))
		held = append(held, pipe.Do(t.Context(), "get", key))
	}
	_, _ = pipe.Exec(t.Context())
	for i, s := range scripts {
		if err := replies[i].Err(); err != nil && err != redis.Nil {
			return fmt.Errorf("%s on %q: %w", s.words, s.before, err)
		}
		var now []byte
		if text, ok := held[i].Val().(string); ok {
			now = []byte(text)
		}
		if err := s.check(replies[i].Val(), now); err != nil {
			return err
		}
		run.steps += len(s.calls)
		if _, ok := replies[i].Val().([]any); ok {
			s.refused = true
			run.refused++
		} else if !bytes.Equal(now, s.before) {
			run.changed++
		}
	}
	return nil
}

// makeSteps makes at least so many steps.
func (run *scriptRun) makeSteps(t *testing.T, seed uint64, steps int) error {
	r := rand.New(rand.NewPCG(seed, 1))
	rules, last := make([]limit.Rule, 500), make([]*script, 500)
	for run.steps < steps {
		var scripts []*script
		for i := range rules {
			if last[i] == nil || r.IntN(20) == 0 {
				rules[i], last[i] = someRule(r), nil
			}
			s := someScript(r, &rules[i], last[i])
			if last[i] = s; len(s.calls) == 0 {
				last[i] = nil
				continue
			}
			scripts = append(scripts, s)
		}
		if err := run.batch(t, scripts); err != nil {
			return err
		}
		for i, s := range last { // a script leaves values alone that are not in its form
			if s != nil && s.refused {
				last[i] = nil
			}
		}
	}
	return nil
}

// TestScriptsMakeTheSteps compares the scripts with the definition of the limiters: 100,000 steps, or a million in the
// long form.
func TestScriptsMakeTheSteps(t *testing.T) {
	steps := 100_000
	if os.Getenv("CELLSERVER_TEST_EXACTNESS") == "long" {
		steps = 1_000_000
	}
	run := &scriptRun{client: peer.Client(&redis.Options{Addr: start(t).Addr})}
	defer run.client.Close()
	for _, script := range adding.Scripts {
		require.NoError(t, run.client.ScriptLoad(t.Context(), script).Err())
	}
	require.NoError(t, run.makeSteps(t, 1, steps))
	t.Logf("%d steps; of the scripts, %d changed the key, and %d left it to the process", run.steps, run.changed, run.refused)
	require.Greater(t, run.changed, 4*run.refused)
}

// TestScriptsGiveWay holds the turn of a key: the scripts then make no steps, and say whose turn it is.
func TestScriptsGiveWay(t *testing.T) {
	client := peer.Client(&redis.Options{Addr: start(t).Addr})
	defer client.Close()
	for _, script := range adding.Scripts {
		require.NoError(t, client.ScriptLoad(t.Context(), script).Err())
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		rule, now := someRule(r), int64(1_800_000_000e9)
		calls := someCalls(r, &rule, now)
		if len(calls) == 0 {
			continue
		}
		ask := func() any {
			return client.Do(t.Context(), adding.AppendCommand(nil, "k", "turn", now, calls)...).Val()
		}
		require.NoError(t, client.FlushAll(t.Context()).Err())
		require.NoError(t, client.Set(t.Context(), "turn", "7:50", 0).Err())
		require.Equal(t, []any{nil, "7:50"}, ask())
		require.NoError(t, client.Del(t.Context(), "turn").Err())
		require.Nil(t, ask(), "the key had no value")
		held, err := client.Get(t.Context(), "k").Result()
		if err == redis.Nil {
			continue // nothing was allowed
		}
		require.NoError(t, client.LPush(t.Context(), "turn", "no string").Err())
		require.Equal(t, held, ask(), "the key turn holds no turn")
		require.NoError(t, client.Del(t.Context(), "turn").Err())
		require.NoError(t, client.Set(t.Context(), "turn", "7:50", 0).Err())
		held = client.Get(t.Context(), "k").Val()
		require.Equal(t, []any{held, "7:50"}, ask())
		require.Equal(t, held, client.Get(t.Context(), "k").Val())
	}
}
