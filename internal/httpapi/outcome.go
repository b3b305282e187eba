package httpapi

import (
	"net/http"
	"strconv"

	"cellserver/internal/policy"
)

// outcome is the answer to a call on one policy or several.
type outcome policy.Outcome

// Indexes of the integers of a decision.
const (
	limitAt = iota + 1
	remainingAt
	retryAt
	resetAt
	takenAt
)

// read reads the next reply, that of CL.TAKE with VERBOSE. Its strings are parts of one copy of the reply.
func (o *outcome) read(c *cursor) {
	(*policy.Outcome)(o).Reset()
	reply := string(c.rest)
	text := func() string { // the next reply, a string
		length := len(c.next().text)
		end := len(reply) - len(c.rest) - len("\r\n")
		return reply[end-length : end]
	}
	for left := c.next().n / 2; left > 0; left-- {
		switch key := c.next(); string(key.text) {
		case "allowed":
			o.Allowed = string(c.next().text) == "t"
		case "policy":
			o.Policy = text()
		case "decided_by":
			o.By = text()
		case "shadow":
			o.Shadow = string(c.next().text) == "t"
		case "decision":
			o.Numbers = min(c.next().n, len(o.Decision))
			for i := range o.Numbers {
				o.Decision[i] = c.integer()
			}
		case "limits":
			o.readLimits(c)
		case "fields":
			for range c.next().n / 2 {
				name := fieldName(c.next().text)
				o.Fields = append(o.Fields, policy.Field{Name: name, Value: text()})
			}
		default:
			c.skip()
		}
	}
	if o.Allowed {
		o.Violated = o.Violated[:0] // in shadow mode
	}
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
			name := o.Policy
			if limits > 1 {
				name += "." + string(label.text)
			}
			o.Violated = append(o.Violated, name)
		}
	}
}

// status returns the status of the response.
func (o *outcome) status() int {
	switch {
	case o.Allowed:
		return http.StatusOK
	case o.By == "override":
		return http.StatusForbidden // the subject is blocked
	case o.Decision[retryAt] < 0:
		return http.StatusRequestEntityTooLarge // waiting does not help
	}
	return http.StatusTooManyRequests
}

// setFields sets the fields of the response.
func (o *outcome) setFields(h http.Header) {
	values := make([]string, len(o.Fields))
	for i, f := range o.Fields {
		values[i] = f.Value
		h[f.Name] = values[i : i+1 : i+1] // the name as in the draft, not in Go's canonical form
	}
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// appendProblem appends the body of a refusal (RFC 9457), with the types of
// draft-ietf-httpapi-ratelimit-headers.
func (o *outcome) appendProblem(dst []byte, status int) []byte {
	switch {
	case status == http.StatusForbidden && o.By == "override":
		dst = append(dst, `{"type":"about:blank","title":"Forbidden"`...)
	case o.By == "ban":
		dst = append(dst, `{"type":"`+problemTypes+
			`abnormal-usage-detected","title":"Request not satisfied due to detection of abnormal request pattern"`...)
	default:
		dst = append(dst, `{"type":"`+problemTypes+
			`quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded"`...)
	}
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(status), 10)
	if len(o.Violated) > 0 {
		dst = append(dst, `,"violated-policies":[`...)
		for i, name := range o.Violated {
			dst = appendString(appendComma(dst, i), []byte(name))
		}
		dst = append(dst, ']')
	}
	return append(o.appendMembers(append(dst, ',')), '}')
}

// appendMembers appends the decision as members of an object.
func (o *outcome) appendMembers(dst []byte) []byte {
	dst = strconv.AppendBool(append(dst, `"allowed":`...), o.Allowed)
	dst = appendString(append(dst, `,"policy":`...), []byte(o.Policy))
	dst = appendString(append(dst, `,"decided_by":`...), []byte(o.By))
	dst = strconv.AppendBool(append(dst, `,"shadow":`...), o.Shadow)
	for i, name := range [...]string{limitAt: "limit", remainingAt: "remaining", retryAt: "retry_after",
		resetAt: "reset_after", takenAt: "taken"} {
		if i > 0 && i < o.Numbers {
			dst = append(append(append(dst, `,"`...), name...), `":`...)
			dst = strconv.AppendInt(dst, o.Decision[i], 10)
		}
	}
	return dst
}

var problemType = []string{"application/problem+json"}

// answer answers a request with the outcome. A header costs a fortieth of the request, so that of a call that
// is allowed has none that is only for browsers: it is a POST, which they do not make from other sites.
func (k *caller) answer(w http.ResponseWriter, o *outcome, status int, waited bool) {
	header := w.Header()
	o.setFields(header)
	if status == http.StatusOK {
		header["Content-Type"] = jsonType
		k.body = append(o.appendMembers(append(k.body[:0], '{')), '}', '\n')
		deliver(w, status, k.body, waited)
		return
	}
	header["Content-Type"] = problemType
	k.body = append(o.appendProblem(k.body[:0], status), '\n')
	send(w, status, k.body, waited)
}
