package commands_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/racetest"
	"cellserver/internal/session/sessiontest"
)

// retries makes random calls of all limiters on a few keys, with parameters that change from call to call, and
// checks every refusal: at the instant of retry_after the same call would be admitted, and would not be a
// millisecond earlier. It asks with PEEK, which leaves the state as it is, so no other call comes in between.
type retries struct {
	*rand.Rand
	server  *commandstest.Server
	client  *sessiontest.Client
	falsify func(retry int64) int64 // a planted fault; nil if there is none
	t       require.TestingT
	checked map[string]int // refusals by the first word of the call
}

// limiterCall is a call as CL.ALL names it: the limiter, its words up to the quantity, and the quantity.
type limiterCall struct {
	name, key, words string
	quantity         int
	options          string // of the command of the limiter: FORCE, UPTO, LEAVE
}

// alone returns the call as a command of its own, with MS.
func (c limiterCall) alone() string {
	return strings.TrimSpace(fmt.Sprintf("CL.%s %s %s %d MS %s", c.name, c.key, c.words, c.quantity, c.options))
}

// entry returns the call as an entry of CL.ALL.
func (c limiterCall) entry() string {
	return fmt.Sprintf("%s %s %s %d", c.name, c.key, c.words, c.quantity)
}

// peek returns a call that asks whether the call would be admitted, on its key or on an unused key. For a call
// with UPTO or FORCE, it asks about a quantity of 1, because the reply says when that would be admitted.
func (c limiterCall) peek(suffix string) string {
	options := c.options
	if name, rest, _ := strings.Cut(options, " "); name == "UPTO" || name == "FORCE" {
		c.quantity, options = min(c.quantity, 1), rest
	}
	c.key += suffix
	if c.name == "ACQUIRE" {
		return "CL.ALL 1 " + c.entry() + " PEEK"
	}
	return strings.TrimSpace(fmt.Sprintf("CL.%s %s %s %d PEEK %s", c.name, c.key, c.words, c.quantity, options))
}

func (r *retries) oneOf(words ...string) string { return words[r.IntN(len(words))] }

// call returns a random call of a limiter. A key of a quota has one unit.
func (r *retries) call() limiterCall {
	c := limiterCall{name: r.oneOf("THROTTLE", "FIXED", "SLIDING", "SLIDINGLOG", "QUOTA", "ACQUIRE"), quantity: r.IntN(3)}
	limit, period := max(1+r.IntN(5)-r.IntN(2), 0), r.oneOf("1", "2", "3", "7", "20", "250ms", "1.5s", "2500ms")
	c.key, c.words = fmt.Sprint(c.name, r.IntN(2)), fmt.Sprint(limit, " ", period)
	switch c.name {
	case "THROTTLE":
		c.words = fmt.Sprint(limit-1, " ", 1+r.IntN(3), " ", period)
	case "QUOTA":
		unit := r.oneOf("3s", "1h", "DAY@America/Vancouver")
		c.key, c.words = "QUOTA"+unit, fmt.Sprint(limit, " ", unit)
	case "ACQUIRE":
		c.words += fmt.Sprint(" holder", r.IntN(3))
	}
	return c
}

// withOptions returns a call with options, or with a refund.
func (r *retries) withOptions(c limiterCall) limiterCall {
	if c.name == "ACQUIRE" {
		return c
	}
	switch r.IntN(8) {
	case 0:
		c.options = "UPTO"
	case 1:
		c.options = "FORCE"
	case 2:
		c.options = fmt.Sprint("LEAVE ", r.IntN(3))
	case 3:
		c.options = fmt.Sprint("UPTO LEAVE ", r.IntN(3))
	case 4:
		c.quantity = -c.quantity
	}
	return c
}

// together returns calls on different keys.
func (r *retries) together() (calls []limiterCall) {
	used := map[string]bool{}
	for range 1 + r.IntN(4) {
		if c := r.call(); !used[c.key] {
			used[c.key] = true
			calls = append(calls, c)
		}
	}
	return calls
}

func all(calls []limiterCall, suffix, options string) string {
	line := fmt.Sprint("CL.ALL ", len(calls))
	for _, c := range calls {
		c.key += suffix
		line += " " + c.entry()
	}
	return line + " " + options
}

// step makes one call and checks its reply.
func (r *retries) step() error {
	if r.IntN(4) == 0 {
		calls := r.together()
		return r.check(all(calls, "", "MS"), func(suffix string) string { return all(calls, suffix, "PEEK") })
	}
	c := r.withOptions(r.call())
	return r.check(c.alone(), c.peek)
}

// check makes a call, and if it is refused moves the clock to its retry_after, in half of the cases.
func (r *retries) check(line string, peek func(suffix string) string) error {
	name, _, _ := strings.Cut(line, " ")
	limited, retry, err := r.ask(line)
	switch {
	case err != nil || !limited:
		return err
	case retry < 0:
		r.checked["never "+name]++
		return r.requireLimited(peek("unused"), true, line)
	case r.IntN(2) == 0:
		return nil
	}
	if r.falsify != nil {
		retry = r.falsify(retry)
	}
	r.checked[name]++
	began := r.server.Clock.Now()
	r.server.Clock.Advance(time.Duration(retry-1) * time.Millisecond)
	if err := r.requireLimited(peek(""), true, line); err != nil {
		return err
	}
	r.server.Clock.Advance(time.Millisecond)
	if err := r.requireLimited(peek(""), false, line); err != nil {
		return err
	}
	second := int64(time.Second) // without MS the time would have been rounded up
	r.server.Clock.Advance(time.Duration((second - (r.server.Clock.Now()-began)%second) % second))
	return r.requireLimited(peek(""), false, line)
}

// ask makes a call and returns limited and retry_after.
func (r *retries) ask(line string) (limited bool, retry int64, err error) {
	reply := r.client.Ask(r.t, "%s", line)
	var numbers [4]int64
	if strings.HasPrefix(line, "CL.ALL") {
		_, err = fmt.Sscanf(reply, "[%d, %d, ", &numbers[0], &numbers[3])
	} else {
		_, err = fmt.Sscanf(reply, "[%d, %d, %d, %d, ", &numbers[0], &numbers[1], &numbers[2], &numbers[3])
	}
	if err != nil {
		return false, 0, fmt.Errorf("%s: %s", line, reply)
	}
	return numbers[0] == 1, numbers[3], nil
}

func (r *retries) requireLimited(peek string, want bool, after string) error {
	if limited, _, err := r.ask(peek); err != nil || limited != want {
		return errors.Join(fmt.Errorf("at %s, after %s: %s: limited is %t", time.Unix(0, r.server.Clock.Now()).UTC(), after,
			peek, limited), err)
	}
	return nil
}

// play plays random histories.
func (r *retries) play(t *testing.T, histories int) error {
	r.t, r.checked = t, map[string]int{}
	for seed := range histories {
		r.Rand = rand.New(rand.NewPCG(28, uint64(seed)))
		r.server = commandstest.New(t)
		r.client = r.server.Connect()
		for range 100 {
			if err := r.step(); err != nil {
				return fmt.Errorf("history %d: %w", seed, err)
			}
			r.server.Clock.Advance(time.Duration(r.Int64N(int64(1500 * time.Millisecond))))
		}
	}
	return nil
}

// If no other client calls, the same call would be admitted at retry_after and not before, whatever limits and
// periods the earlier calls have named.
func TestRetryAfterIsTheInstantOfAdmission(t *testing.T) {
	racetest.HasOneGoroutine(t)
	var r retries
	require.NoError(t, r.play(t, 300))
	for _, name := range []string{"THROTTLE", "FIXED", "SLIDING", "SLIDINGLOG", "QUOTA", "ACQUIRE", "ALL"} {
		require.Greater(t, r.checked["CL."+name], 40, "%s: %v", name, r.checked)
		require.Greater(t, r.checked["never CL."+name], 10, "%s: %v", name, r.checked)
	}
}

// A retry_after that is too short or too long by a millisecond is found.
func TestWrongRetriesAreFound(t *testing.T) {
	for _, by := range []int64{-1, 1} {
		r := retries{falsify: func(retry int64) int64 { return retry + by }}
		require.Error(t, r.play(t, 3))
	}
}
