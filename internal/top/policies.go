package top

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/redis/go-redis/v9"
)

// policyList is the policies that are in force. A user without the right to see them sees the error instead.
type policyList struct {
	policies []policy
	more     int // that are not in the list
	err      error
}

// policy is a policy of CL.TAKE, with its limits as CL.POLICY GET shows them.
type policy struct{ name, text string }

const (
	policiesEvery = 10 // samples: policies change seldom
	mostPolicies  = 20
)

// policiesOf returns the policies. Its error is the connection's. A server that has no policies is not
// asked, and not again if the user may not know them, because refusals are logged.
func (s *sampler) policiesOf(ctx context.Context, now *sample) (policyList, error) {
	switch {
	case now.number("policies") == 0:
		s.policies, s.asked = policyList{}, 0
	case s.asked == 0:
		var err error
		if s.policies, err = s.readPolicies(ctx); err != nil {
			return policyList{}, err
		}
		s.asked = 1
	case s.policies.err == nil || !isDenied(s.policies.err):
		s.asked = (s.asked + 1) % policiesEvery
	}
	return s.policies, nil
}

func (s *sampler) readPolicies(ctx context.Context) (all policyList, err error) {
	var refusal redis.Error
	names, err := s.conn.Do(ctx, "CL.POLICY", "LIST").StringSlice()
	for _, name := range names[:min(len(names), mostPolicies)] {
		var fields []any
		fields, err = s.conn.Do(ctx, "CL.POLICY", "GET", name).Slice()
		if errors.As(err, &refusal) && !isDenied(err) {
			err = nil // it was removed meanwhile
			continue
		}
		if err != nil {
			break
		}
		all.policies = append(all.policies, policy{name, textOf(fields)})
	}
	all.more = len(names) - len(all.policies)
	if errors.As(err, &refusal) {
		return policyList{err: err}, nil
	}
	return all, err
}

func isDenied(err error) bool { return strings.HasPrefix(err.Error(), "NOPERM ") }

// textOf returns the limits of a policy, the number of its overrides, and its other fields, from the names and
// values of CL.POLICY GET.
func textOf(fields []any) string {
	var parts []string
	for i := 0; i+1 < len(fields); i += 2 {
		values, _ := fields[i+1].([]any)
		switch name := fmt.Sprint(fields[i]); {
		case name == "overrides" && len(values) > 0:
			parts = append(parts, fmt.Sprint("overrides: ", len(values)))
		case name != "overrides":
			for _, value := range values {
				text := fmt.Sprint(value)
				if name != "limits" {
					text = name + ": " + text
				}
				parts = append(parts, text)
			}
		}
	}
	return strings.Join(parts, "; ")
}

// byPolicy is what each policy decides, the busiest first, as far as it fits into a room; nothing without policies.
func (v *view) byPolicy(room int) []line {
	const prefix, format = "policy_decisions_", "%-20s %10s %10s %10s %10s %10s"
	results := []string{"allowed", "limited", "shadow", "banned", "error"}
	fields := v.busiest(prefix, results...)
	if len(fields) == 0 {
		return nil
	}
	heading := fmt.Sprintf(format, "BY POLICY", "allowed/s", "limited/s", "shadow/s", "banned/s", "errors/s")
	all := []line{{}, {heading, true}}
	for _, field := range fields {
		row := []any{strings.TrimPrefix(field, prefix)}
		for _, result := range results {
			row = append(row, shown(v.partRate(field, result)))
		}
		all = append(all, line{text: fmt.Sprintf(format, row...)})
	}
	return fit(all, room)
}

// roomForPolicies returns how many lines of a terminal the policies may take. The lists of keys
// come first.
func roomForPolicies(height, used int) int {
	const forKeys = 2 * (around + 5)
	if height == 0 {
		return math.MaxInt
	}
	return height - used - forKeys
}

// lines returns as much of the list as fits into so many lines, and nothing without policies.
func (l policyList) lines(room int) []line {
	var texts []string
	if l.err != nil {
		texts = []string{l.err.Error()}
	}
	for _, p := range l.policies {
		texts = append(texts, fmt.Sprintf("%-20s %s", p.name, p.text))
	}
	if len(texts) == 0 || room <= around {
		return nil
	}
	more := l.more
	if fits := room - around; len(texts) > fits {
		more += len(texts) - fits + 1
		texts = texts[:fits-1]
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	all := []line{{}, {"POLICIES", true}}
	for _, text := range texts {
		all = append(all, line{text: text})
	}
	return all
}
