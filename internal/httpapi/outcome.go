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

// answer answers a request with the outcome. A header costs a fortieth of the request, so the answer to an
// allowed call has no header that is only for browsers: the call is a POST, which they do not make from other sites.
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
