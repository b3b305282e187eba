package cellserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Answer is the answer to a request. Status is 200 if the request is allowed. Use it for the middleware of other
// frameworks, and for interceptors.
type Answer struct {
	Status int
	Header http.Header // RateLimit, RateLimit-Policy and Retry-After; set for allowed requests too
	Body   []byte      // of type application/problem+json, unless the status is 200
}

// Middleware limits requests by a policy. The subject of a request is, for example, the user who makes it. A refused
// request gets status 429, and 503 if the server does not answer and OnError is Deny.
func (l *Limiter) Middleware(policy string, subject func(*http.Request) string) func(http.Handler) http.Handler {
	return l.MiddlewareOf(policy, func(r *http.Request) Limit { return Policy(policy, subject(r)) })
}

// MiddlewareOf limits requests by a limit that limit returns. The RateLimit fields of responses call it name.
func (l *Limiter) MiddlewareOf(name string, limit func(*http.Request) Limit) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, err := l.Answer(r.Context(), name, limit(r))
			if err != nil { // a mistake of the program, which Observe has seen
				http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
				return
			}
			for field, values := range a.Header {
				w.Header()[field] = values
			}
			if a.Status == http.StatusOK {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(a.Status)
			_, _ = w.Write(a.Body)
		})
	}
}

// Answer takes 1 from a limit, and returns the answer to the request.
func (l *Limiter) Answer(ctx context.Context, name string, limit Limit) (Answer, error) {
	o := outcome{name: name, by: limit.kind, limit: limit, header: http.Header{}}
	if limit.policy == "" {
		var err error
		if o.d, err = l.Do(ctx, limit, 1); err != nil {
			return Answer{}, err
		}
		o.setFields()
		return o.answer(), nil
	}
	c := newCall(limit, 1, nil, "VERBOSE")
	reply, d, err := l.ask(ctx, c)
	if err == nil && d.Cause == nil {
		if d, err = o.read(reply); err == nil {
			l.observe(ctx, c, d, nil)
		}
	}
	o.d = d
	return o.answer(), err
}

// outcome is a decision about a request.
type outcome struct {
	name, by string
	limit    Limit
	d        Decision
	header   http.Header
}

// read reads the reply to CL.TAKE with VERBOSE, which is a map, or a list of its keys and values.
func (o *outcome) read(reply any) (Decision, error) {
	members := pairs(reply)
	d, err := decisionOf(members["decision"])
	if err != nil {
		return d, err
	}
	// In shadow mode, this differs from the decision.
	d.Allowed = members["allowed"] == int64(1) || members["allowed"] == true
	o.by = fmt.Sprint(members["decided_by"])
	for name, value := range pairs(members["fields"]) {
		o.header[name] = []string{fmt.Sprint(value)}
	}
	return d, nil
}

func pairs(reply any) map[string]any {
	m := map[string]any{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			m[fmt.Sprint(k)] = v
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			m[fmt.Sprint(reply[i])] = reply[i+1]
		}
	}
	return m
}

// setFields sets the fields of draft-ietf-httpapi-ratelimit-headers, as the server does for policies.
func (o *outcome) setFields() {
	if o.d.Cause != nil {
		return
	}
	policy := fmt.Sprintf("%q;q=%d", o.name, o.d.Limit)
	state := fmt.Sprintf("%q;r=%d", o.name, o.d.Remaining)
	if o.limit.period >= time.Second {
		policy += ";w=" + wholeSeconds(o.limit.period)
	}
	if t := o.more(); t > 0 {
		state += ";t=" + wholeSeconds(t)
	}
	o.header["RateLimit-Policy"], o.header["RateLimit"] = []string{policy}, []string{state}
}

// more returns the time until more remains; 0 if all remains, or the time is not known.
func (o *outcome) more() time.Duration {
	used := o.d.Limit - o.d.Remaining
	switch {
	case !o.d.Allowed:
		return o.d.RetryAfter
	case used == 0 || o.d.Limit == 0:
		return 0
	case o.by == "THROTTLE":
		return o.d.ResetAfter - time.Duration(used-1)*(o.limit.period/time.Duration(o.d.Limit))
	case o.by == "FIXED" || o.by == "QUOTA":
		return o.d.ResetAfter
	}
	return 0
}

func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

const problems = "https://iana.org/assignments/http-problem-types#"

func (o *outcome) answer() Answer {
	a := Answer{Status: http.StatusTooManyRequests, Header: o.header}
	if !o.d.Allowed && o.d.RetryAfter > 0 {
		o.header["Retry-After"] = []string{wholeSeconds(o.d.RetryAfter)}
	}
	kind, title := problems+"quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"
	switch {
	case o.d.Allowed:
		a.Status = http.StatusOK
		return a
	case o.d.Cause != nil && o.d.Limit == 0:
		a.Status, kind = http.StatusServiceUnavailable, problems+"temporary-reduced-capacity"
		title = "Request cannot be satisfied due to temporary server capacity constraints"
	case o.by == "override":
		a.Status, kind, title = http.StatusForbidden, "about:blank", "Forbidden"
	case o.by == "ban":
		kind = problems + "abnormal-usage-detected"
		title = "Request not satisfied due to detection of abnormal request pattern"
	case o.d.RetryAfter == Never:
		a.Status = http.StatusRequestEntityTooLarge
	}
	a.Body, _ = json.Marshal(map[string]any{"type": kind, "title": title, "status": a.Status, "policy": o.name})
	return a
}
