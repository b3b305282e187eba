package httpapi

import (
	"net/http"
	"slices"
	"strconv"

	"cellserver/internal/policy"
	"cellserver/internal/quota"
)

// takeAll takes one unit from each policy, or nothing. If there is no decision, refused says why.
func (k *caller) takeAll(r *http.Request, asks []ask) (o *outcome, refused string) {
	if len(asks) == 1 {
		k.calls.Add(k.conn.api.names().take, asks[0].subject, asks[0].name, "1", "VERBOSE")
		if _, refused = k.decide(r, nil); refused != "" {
			return nil, refused
		}
		return (*outcome)(&k.outcomes.All()[0]), ""
	}
	words := []string{k.conn.api.names().all, strconv.Itoa(len(asks))}
	for i := range asks {
		words = append(words, "TAKE", asks[i].subject, asks[i].name, "1")
	}
	k.calls.Add(append(words, "VERBOSE")...)
	reply, refused := k.decide(r, nil)
	if refused != "" {
		return nil, refused
	}
	reply.Next() // an array, which begins with whether the call is limited, and the time to wait
	allowed := reply.Int() == 0
	return together(k.outcomes.All(), allowed, reply.Int()), ""
}

// together returns the outcome of a call on several policies, from the outcome of each.
func together(outcomes []policy.Outcome, allowed bool, retry int64) *outcome {
	o := outcome(outcomes[deciding(outcomes)])
	o.Allowed, o.Fields, o.Violated = allowed, joined(outcomes), nil
	for i := range outcomes {
		o.Violated = append(o.Violated, outcomes[i].Violated...)
	}
	if !allowed {
		o.Decision[0], o.Decision[retryAt] = 1, retry
		if retry >= 0 {
			o.Fields = append(o.Fields, policy.Field{Name: "Retry-After", Value: strconv.FormatInt(retry, 10)})
		}
	}
	return &o
}

// deciding returns the index of the outcome that a call is answered with: the refusal with the longest
// time to wait, or, if nothing refuses the call, the outcome with the least part remaining; the first of equals.
func deciding(outcomes []policy.Outcome) int {
	verdicts := make([]policy.Verdict, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		verdicts[i].Decision = quota.Decision{
			Limited: !o.Allowed, Limit: o.Decision[limitAt], Remaining: o.Decision[remainingAt],
			RetryAfter: o.Decision[retryAt],
		}
	}
	return policy.Deciding(verdicts)
}

// joined returns the fields of several outcomes: the lists of the RateLimit fields joined, and the others of
// the outcome that decides, without Retry-After.
func joined(outcomes []policy.Outcome) (fields []policy.Field) {
	for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
		list := ""
		for i := range outcomes {
			if value, is := field(&outcomes[i], name); is && list == "" {
				list = value
			} else if is {
				list += ", " + value
			}
		}
		if list != "" {
			fields = append(fields, policy.Field{Name: name, Value: list})
		}
	}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if value, is := field(&outcomes[deciding(outcomes)], name); is {
			fields = append(fields, policy.Field{Name: name, Value: value})
		}
	}
	return fields
}

func field(o *policy.Outcome, name string) (value string, is bool) {
	i := slices.IndexFunc(o.Fields, func(f policy.Field) bool { return f.Name == name })
	if i < 0 {
		return "", false
	}
	return o.Fields[i].Value, true
}
