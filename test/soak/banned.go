package main

import (
	"context"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"
)

// policiesFile has the policy of the clients below. The path is relative to the repository's root,
// where the command must run.
const policiesFile = "test/soak/testdata/policies.yaml"

// The limit of the policy, and the number of the refusal that leads to a ban.
const (
	takes    = 20
	banAfter = 10
)

// known is a call, and the beginning of its correct reply.
type known struct {
	call []any
	want string
}

// round returns calls of a subject: it takes all tokens, is refused until it is banned, is exempt, banned again,
// pardoned, and banned by CL.BAN. The last call deletes the keys of the subject.
func round(subject string) (calls []known) {
	add := func(want string, words ...any) { calls = append(calls, known{words, want}) }
	take := func(want string) { add(want, "CL.TAKE", subject, "soak") }
	for n := range takes {
		take(fmt.Sprint("allowed, left ", takes-n-1))
	}
	for range banAfter - 1 {
		take("refused")
	}
	take("banned")
	take("banned")
	add("OK", "CL.EXEMPT", subject, "soak", 1_000_000, "a reason")
	take("exempt")
	add("OK", "CL.EXEMPT", subject, "soak", 0)
	take("banned")
	add("1", "CL.PARDON", subject, "soak")
	take("refused")
	add("OK", "CL.BAN", subject, "soak", 100_000_000)
	take("banned")
	head := "soak:{" + subject + "}:"
	add("2", "DEL", head+"standing", head+"fixed")
	return calls
}

// told summarizes a reply: allowed, with what is left, or refused, banned or exempt.
func told(reply any) string {
	decision, is := reply.([]any)
	if !is || len(decision) != 5 {
		return fmt.Sprint(reply)
	}
	switch {
	case decision[1] == int64(math.MaxInt64):
		return "exempt"
	case decision[0] == int64(0):
		return fmt.Sprint("allowed, left ", decision[2])
	case decision[3].(int64) > 2_000_000:
		return "banned"
	}
	return "refused"
}

// banned makes the calls of a round again and again. It knows each reply beforehand.
func (s *soak) banned(ctx context.Context, subject string, protocol int) error {
	c := connect(s.server.addr, protocol)
	defer c.Close()
	calls := round(subject)
	return paced(ctx, clientPace, func() error {
		replies, err := c.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for _, k := range calls {
				p.Do(context.Background(), k.call...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		for i, reply := range replies {
			if got := told(reply.(*redis.Cmd).Val()); got != calls[i].want {
				return fmt.Errorf("%s: %v got %s in place of %s", subject, calls[i].call, got, calls[i].want)
			}
		}
		s.calls.Add(int64(len(calls)))
		return nil
	})
}
