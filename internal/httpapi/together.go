package httpapi

import (
	"net/http"
	"slices"
	"strconv"

	"cellserver/internal/policy"
	"cellserver/internal/quota"
)

// takeAll takes one unit from each policy, or nothing. If there is no decision, refused says why.
func (k *caller) takeAll(r *http.Request, asks []ask) (o outcome, refused string) {
	if len(asks) == 1 {
		return k.ask(r, "CL.TAKE", asks[0].subject, asks[0].name, "1", "VERBOSE")
	}
	words := []string{"CL.ALL", strconv.Itoa(len(asks))}
	for i := range asks {
		words = append(words, "TAKE", asks[i].subject, asks[i].name, "1")
	}
	replies, refused := k.makeCall(r, words)
	if refused != "" {
		return o, refused
	}
	replies.next()
	allowed := replies.integer() == 0
	retry := replies.integer()
	return k.describe(r, asks, allowed, retry)
}

// describe asks each policy for what its part of the response says, after a decision about all of them. This
// takes nothing.
func (k *caller) describe(r *http.Request, asks []ask, allowed bool, retry int64) (o outcome, refused string) {
	outcomes := make([]outcome, len(asks))
	for i := range asks {
		if !allowed { // whether it refuses the call, and until when
			outcomes[i], refused = k.peek(r, &asks[i], "1")
		}
		if refused == "" && (allowed || outcomes[i].allowed) { // what remains
			outcomes[i], refused = k.peek(r, &asks[i], "0")
		}
		if refused != "" {
			return o, refused
		}
	}
	o = outcomes[deciding(outcomes)]
	o.allowed, o.fields = allowed, joined(outcomes)
	o.violated = nil
	for i := range outcomes {
		o.violated = append(o.violated, outcomes[i].violated...)
	}
	if !allowed {
		o.decision[0], o.decision[retryAt] = 1, retry
		if retry >= 0 {
			o.fields = append(o.fields, policy.Field{Name: "Retry-After", Value: strconv.FormatInt(retry, 10)})
		}
	}
	return o, ""
}

func (k *caller) peek(r *http.Request, asked *ask, quantity string) (o outcome, refused string) {
	return k.ask(r, "CL.TAKE", asked.subject, asked.name, quantity, "PEEK", "VERBOSE")
}

// deciding returns the index of the outcome that a call is answered with: of those that refuse it the one with
// the longest time to wait, else the one of which the least part remains; the first of equals.
func deciding(outcomes []outcome) int {
	verdicts := make([]policy.Verdict, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		verdicts[i].Decision = quota.Decision{
			Limited: !o.allowed, Limit: o.decision[limitAt], Remaining: o.decision[remainingAt], RetryAfter: o.decision[retryAt],
		}
	}
	return policy.Deciding(verdicts)
}

// joined returns the fields of several outcomes: the lists of the RateLimit fields joined, and the others of
// the outcome that decides, without Retry-After.
func joined(outcomes []outcome) (fields []policy.Field) {
	for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
		list := ""
		for i := range outcomes {
			if value, is := outcomes[i].field(name); is && list == "" {
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
		if value, is := outcomes[deciding(outcomes)].field(name); is {
			fields = append(fields, policy.Field{Name: name, Value: value})
		}
	}
	return fields
}

func (o *outcome) field(name string) (value string, is bool) {
	i := slices.IndexFunc(o.fields, func(f policy.Field) bool { return f.Name == name })
	if i < 0 {
		return "", false
	}
	return o.fields[i].Value, true
}

// ask makes a call of CL.TAKE with VERBOSE.
func (k *caller) ask(r *http.Request, words ...string) (o outcome, refused string) {
	replies, refused := k.makeCall(r, words)
	if refused != "" {
		return o, refused
	}
	return replies.outcome(), ""
}

// makeCall makes a call, and returns its reply. If that is an error, or there is none, refused says why.
func (k *caller) makeCall(r *http.Request, words []string) (reply cursor, refused string) {
	k.calls, k.replies = appendCall(k.calls[:0], words), k.replies[:0]
	err := k.run(r.Context(), nil)
	reply = cursor{rest: k.replies}
	if text, is := reply.peekError(); is {
		return reply, text
	}
	switch {
	case len(k.replies) > 0:
		return reply, ""
	case err != nil:
		return reply, err.Error()
	}
	return reply, errSessionEnded.Error()
}
