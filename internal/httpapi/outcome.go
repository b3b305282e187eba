package httpapi

import (
	"net/http"
	"strconv"

	"cellserver/internal/policy"
)

// outcome is the answer to a call on one policy or several.
type outcome struct {
	policy   string
	by       string // what has decided: the label of a limit, override, exemption or ban
	allowed  bool
	shadow   bool
	decision [6]int64 // the five integers of a limiter, and what UPTO has taken
	numbers  int      // how many of them there are
	violated []string // names of the limits that have refused the call
	fields   []policy.Field
}

// Indexes of the integers of a decision.
const (
	limitAt = iota + 1
	remainingAt
	retryAt
	resetAt
	takenAt
)

// outcome reads the next reply, that of CL.TAKE with VERBOSE.
func (c *cursor) outcome() (o outcome) {
	for left := c.next().n / 2; left > 0; left-- {
		switch key := c.next(); string(key.text) {
		case "allowed":
			o.allowed = string(c.next().text) == "t"
		case "policy":
			o.policy = string(c.next().text)
		case "decided_by":
			o.by = string(c.next().text)
		case "shadow":
			o.shadow = string(c.next().text) == "t"
		case "decision":
			o.numbers = min(c.next().n, len(o.decision))
			for i := range o.numbers {
				o.decision[i] = c.integer()
			}
		case "limits":
			o.readLimits(c)
		case "fields":
			n := c.next().n / 2
			o.fields = make([]policy.Field, n)
			for i := range o.fields {
				name := fieldName(c.next().text)
				o.fields[i] = policy.Field{Name: name, Value: string(c.next().text)}
			}
		default:
			c.skip()
		}
	}
	if o.allowed {
		o.violated = nil // in shadow mode
	}
	return o
}

// fieldNames are the names of all fields, in the order in which they are looked for.
var fieldNames = [...]string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining",
	"X-RateLimit-Reset", "Retry-After"}

func fieldName(text []byte) string {
	for _, name := range fieldNames {
		if name == string(text) {
			return name
		}
	}
	return string(text)
}

// readLimits reads the decisions of the limits, and notes which have refused the call. Limits are named as in
// the RateLimit fields.
func (o *outcome) readLimits(c *cursor) {
	limits := c.next().n / 2
	for range limits {
		label := c.next()
		decision := *c
		c.skip()
		if decision.next(); decision.integer() == 1 {
			name := o.policy
			if limits > 1 {
				name += "." + string(label.text)
			}
			o.violated = append(o.violated, name)
		}
	}
}

// status returns the status of the response.
func (o *outcome) status() int {
	switch {
	case o.allowed:
		return http.StatusOK
	case o.by == "override":
		return http.StatusForbidden // the subject is blocked
	case o.decision[retryAt] < 0:
		return http.StatusRequestEntityTooLarge // waiting does not help
	}
	return http.StatusTooManyRequests
}

// setFields sets the fields of the response.
func (o *outcome) setFields(h http.Header) {
	values := make([]string, len(o.fields))
	for i, f := range o.fields {
		values[i] = f.Value
		h[f.Name] = values[i : i+1 : i+1] // the name as in the draft, not in Go's canonical form
	}
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// appendProblem appends the body of a refusal (RFC 9457), with the types of
// draft-ietf-httpapi-ratelimit-headers.
func (o *outcome) appendProblem(dst []byte, status int) []byte {
	switch {
	case status == http.StatusForbidden && o.by == "override":
		dst = append(dst, `{"type":"about:blank","title":"Forbidden"`...)
	case o.by == "ban":
		dst = append(dst, `{"type":"`+problemTypes+
			`abnormal-usage-detected","title":"Request not satisfied due to detection of abnormal request pattern"`...)
	default:
		dst = append(dst, `{"type":"`+problemTypes+
			`quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded"`...)
	}
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(status), 10)
	if len(o.violated) > 0 {
		dst = append(dst, `,"violated-policies":[`...)
		for i, name := range o.violated {
			dst = appendString(appendComma(dst, i), []byte(name))
		}
		dst = append(dst, ']')
	}
	return append(o.appendMembers(append(dst, ',')), '}')
}

// appendMembers appends the decision as members of an object.
func (o *outcome) appendMembers(dst []byte) []byte {
	dst = strconv.AppendBool(append(dst, `"allowed":`...), o.allowed)
	dst = appendString(append(dst, `,"policy":`...), []byte(o.policy))
	dst = appendString(append(dst, `,"decided_by":`...), []byte(o.by))
	dst = strconv.AppendBool(append(dst, `,"shadow":`...), o.shadow)
	for i, name := range [...]string{limitAt: "limit", remainingAt: "remaining", retryAt: "retry_after",
		resetAt: "reset_after", takenAt: "taken"} {
		if i > 0 && i < o.numbers {
			dst = append(append(append(dst, `,"`...), name...), `":`...)
			dst = strconv.AppendInt(dst, o.decision[i], 10)
		}
	}
	return dst
}

var problemType = []string{"application/problem+json"}

// answer answers a request with the outcome.
func (o *outcome) answer(w http.ResponseWriter, status int, waited bool) {
	body := make([]byte, 0, 512)
	if o.setFields(w.Header()); status == http.StatusOK {
		body = append(o.appendMembers(append(body, '{')), '}', '\n')
	} else {
		w.Header()["Content-Type"] = problemType
		body = append(o.appendProblem(body, status), '\n')
	}
	send(w, status, body, waited)
}
