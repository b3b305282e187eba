//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"cellserver/bench/report"
)

// recordedReplies is the file with calls of CL.THROTTLE, and the replies of redis-cell 0.5.0.
const recordedReplies = "test/differential/testdata/throttle-sample.txt"

// decision is a call: the key, max_burst, count, period and quantity.
type decision struct {
	key                            string
	burst, count, period, quantity int
}

// answer is a limiter's reply to a decision, in the order of CL.THROTTLE. The times are in seconds.
type answer struct {
	limited                bool
	limit, remaining       float64
	retryAfter, resetAfter float64
}

// sameTimes reports whether the times differ by less than a second: some limiters round them up, and others
// down.
func (a answer) sameTimes(b answer) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) <= 1 }
	never := func(x float64) bool { return x < 0 }
	return never(a.retryAfter) == never(b.retryAfter) && near(a.retryAfter, b.retryAfter) &&
		near(a.resetAfter, b.resetAfter)
}

// recordedCall is a recorded call and its answer.
type recordedCall struct {
	decision
	answer
}

// readRecorded returns the recorded calls, grouped by key.
func readRecorded(root string) (byKey [][]recordedCall, err error) {
	text, err := os.ReadFile(filepath.Join(root, recordedReplies))
	if err != nil {
		return nil, err
	}
	place := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parseRecorded(line)
		if err != nil {
			return nil, err
		}
		at, known := place[c.key]
		if !known {
			at = len(byKey)
			place[c.key] = at
			byKey = append(byKey, nil)
		}
		byKey[at] = append(byKey[at], c)
	}
	return byKey, nil
}

// parseRecorded parses a line: key max_burst count period quantity = the five integers.
func parseRecorded(line string) (c recordedCall, err error) {
	var limited int
	n, err := fmt.Sscanf(line, "%s %d %d %d %d = %d %g %g %g %g", &c.key, &c.burst, &c.count, &c.period, &c.quantity,
		&limited, &c.limit, &c.remaining, &c.retryAfter, &c.resetAfter)
	if err != nil {
		return c, fmt.Errorf("%q after %d numbers: %w", line, n, err)
	}
	c.limited = limited == 1
	return c, nil
}

// answers makes the recorded calls to each limiter, and counts how many answers agree with the
// recorded replies.
func (o *options) answers(ctx context.Context, b *bench) (s report.Scenario, err error) {
	byKey, err := readRecorded(o.root)
	if err != nil {
		return s, err
	}
	for _, r := range o.rivals() {
		row, err := r.replay(ctx, b, byKey)
		if err != nil {
			return s, fmt.Errorf("%s: %w", r.name, err)
		}
		s.Answers = append(s.Answers, row)
	}
	return s, nil
}

func (r rival) replay(ctx context.Context, b *bench, byKey [][]recordedCall) (row report.Answers, err error) {
	entrants, err := b.enter(ctx, []contender{r.contender}, "")
	defer func() { b.leave(entrants) }()
	if err != nil {
		return row, err
	}
	client := connectTo(entrants[0])
	defer client.Close()
	row.Server = r.name
	b.progress.say("replaying on " + r.name)
	for _, calls := range byKey {
		got, err := r.ask(ctx, client, entrants[0].sha, calls)
		if err != nil {
			return row, err
		}
		for i, want := range calls {
			row.Add(got[i] != nil && got[i].limited == want.limited,
				got[i] != nil && got[i].remaining == want.remaining && got[i].limit == want.limit,
				got[i] != nil && got[i].sameTimes(want.answer))
		}
	}
	return row, nil
}

// connectTo returns a client that sends only the calls that are made with it.
func connectTo(e *entrant) *redis.Client {
	return redis.NewClient(&redis.Options{Network: e.target.Network, Addr: e.target.Address, Protocol: 2, MaxRetries: -1,
		DisableIdentity: true})
}

// ask makes the calls of one key in one pipeline, so that they are decided at nearly the same instant. An
// error reply, for example because the limiter does not know the call, is a nil answer.
func (r rival) ask(ctx context.Context, client *redis.Client, sha string, calls []recordedCall) ([]*answer, error) {
	pipeline := client.Pipeline()
	for _, c := range calls {
		words := r.decide(c.decision)
		for i, word := range words {
			if word == "{sha}" {
				words[i] = sha
			}
		}
		pipeline.Do(ctx, words...)
	}
	replies, _ := pipeline.Exec(ctx) // each reply has its own error
	var answers []*answer
	for i, reply := range replies {
		values, err := reply.(*redis.Cmd).Slice()
		var refusal redis.Error
		switch {
		case err == nil && len(values) >= 4:
			a := r.answer(calls[i].decision, numbers(values))
			answers = append(answers, &a)
		case err == nil || errors.As(err, &refusal):
			answers = append(answers, nil)
		default:
			return nil, err
		}
	}
	return answers, nil
}

// throttled makes calls of CL.THROTTLE.
func throttled(name string) func(d decision) []any {
	return func(d decision) []any { return []any{name, d.key, d.burst, d.count, d.period, d.quantity} }
}

// scripted makes calls of a script. redis_rate's script has the limit in place of max_burst, and a prefix.
func scripted(prefix string) func(d decision) []any {
	return func(d decision) []any {
		if prefix != "" {
			d.burst++
		}
		return []any{"EVALSHA", "{sha}", 1, prefix + d.key, d.burst, d.count, d.period, d.quantity}
	}
}

// crabCall makes calls of throttlecrab, whose max_burst is the limit.
func crabCall(d decision) []any {
	return []any{"THROTTLE", d.key, d.burst + 1, d.count, d.period, d.quantity}
}

func asThrottle(_ decision, n []float64) answer {
	return answer{limited: n[0] == 1, limit: n[1], remaining: n[2], retryAfter: n[3], resetAfter: n[4]}
}

// asCrab reads a reply of throttlecrab: allowed, limit, remaining, reset_after, retry_after. Its retry_after is
// 0 for a call that was allowed.
func asCrab(_ decision, n []float64) answer {
	a := answer{limited: n[0] == 0, limit: n[1], remaining: n[2], retryAfter: n[4], resetAfter: n[3]}
	if !a.limited && a.retryAfter == 0 {
		a.retryAfter = -1
	}
	return a
}

// asRedisRate reads a reply of redis_rate's script: the quantity that was allowed, remaining, retry_after and
// reset_after. The reply does not have the limit.
func asRedisRate(d decision, n []float64) answer {
	return answer{limited: n[2] >= 0, limit: float64(d.burst + 1), remaining: n[1], retryAfter: n[2], resetAfter: n[3]}
}

// numbers returns the elements of a reply as numbers: NaN stands for an element that is not a number.
func numbers(reply []any) []float64 {
	n := []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	for i := range min(len(n), len(reply)) {
		switch value := reply[i].(type) {
		case int64:
			n[i] = float64(value)
		case string:
			if number, err := strconv.ParseFloat(value, 64); err == nil {
				n[i] = number
			}
		}
	}
	return n
}
