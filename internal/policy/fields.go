package policy

import (
	"strconv"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
)

// Field is a field of an HTTP response.
type Field struct{ Name, Value string }

// Report is one policy's part of a call, for the fields of its response.
type Report struct {
	Policy    *Policy
	Treatment Treatment
	Decisions []quota.Decision // of the limits; nil if they were not asked
	Verdict   Verdict
}

// maxInteger is the largest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// Fields appends the fields of the response to a call on some policies, at an instant in Unix seconds:
//
//	RateLimit-Policy, RateLimit
//	    of draft-ietf-httpapi-ratelimit-headers: lists with a member for each limit. The member has the
//	    name of the policy; if the policy has several limits, a dot and the limit's label follow. q is the
//	    limit, and w the time in which it comes back; r is what remains, and t the time until more remains.
//	X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset
//	    of the limit that decides the call.
//	Retry-After
//	    if the call is limited, and not for ever.
//
// All times are whole seconds, rounded up. A w below a second is left out. t is the limit's own time to
// wait if it has limited the call, or else the time to the next unit of a throttle, and to the end of the
// window of a fixed window or a quota; it is left out if nothing is used, or the limit does not know. In
// a ban, t is the rest of the ban. A policy that allows or blocks all calls of a subject has no fields.
func Fields(dst []Field, reports []Report, now int64) []Field {
	policies, states := make([]byte, 0, 256), make([]byte, 0, 128)
	verdicts := make([]Verdict, 0, 2)
	for i := range reports {
		policies, states = reports[i].appendMembers(policies, states, now)
		verdicts = append(verdicts, reports[i].Verdict)
	}
	if len(verdicts) == 0 {
		return dst
	}
	w := fieldWriter{text: policies, fields: dst}
	if len(policies) > 0 {
		w.end("RateLimit-Policy")
		w.text = append(w.text, states...)
		w.end("RateLimit")
	}
	v := &verdicts[Deciding(verdicts)]
	if v.By == ByLimit || v.By == ByBan {
		w.integer("X-RateLimit-Limit", v.Decision.Limit)
		w.integer("X-RateLimit-Remaining", v.Remaining)
		w.integer("X-RateLimit-Reset", wholeSeconds(v.ResetAfter))
	}
	if v.Limited && v.RetryAfter != quota.Never {
		w.integer("Retry-After", wholeSeconds(v.RetryAfter))
	}
	return w.result()
}

// fieldWriter collects fields. Their values are parts of one string, which is one allocation.
type fieldWriter struct {
	text   []byte
	ends   [6]int // of the values
	count  int
	fields []Field
}

// end ends the value of a field, which has been appended to the text.
func (w *fieldWriter) end(name string) {
	w.ends[w.count] = len(w.text)
	w.count++
	w.fields = append(w.fields, Field{Name: name})
}

func (w *fieldWriter) integer(name string, value int64) {
	w.text = strconv.AppendInt(w.text, value, 10)
	w.end(name)
}

func (w *fieldWriter) result() []Field {
	text, begin := string(w.text), 0
	added := w.fields[len(w.fields)-w.count:]
	for i := range added {
		added[i].Value = text[begin:w.ends[i]]
		begin = w.ends[i]
	}
	return w.fields
}

// appendMembers appends a member for each limit to both lists.
func (r *Report) appendMembers(policies, states []byte, now int64) (p, s []byte) {
	inBan := r.Verdict.By == ByBan
	if len(r.Decisions) == 0 && !inBan {
		return policies, states
	}
	limits := r.Policy.limitsIn(r.Treatment)
	for i := range limits {
		l := &limits[i]
		d, wait := &r.Verdict.Decision, r.Verdict.RetryAfter // in a ban
		if !inBan {
			d = &r.Decisions[i]
			wait = l.more(d, r.Verdict.Limited)
		}
		policies = appendName(policies, r.Policy, l, len(limits))
		policies = appendParameter(policies, ";q=", l.Size())
		if w := l.Period(now * 1e9); w >= 1e9 {
			policies = appendParameter(policies, ";w=", wholeSeconds(w))
		}
		states = appendName(states, r.Policy, l, len(limits))
		states = appendParameter(states, ";r=", d.Remaining)
		if wait > 0 { // Never is negative
			states = appendParameter(states, ";t=", wholeSeconds(wait))
		}
	}
	return policies, states
}

// appendName appends the name of a limit as a string of a structured field. Names and labels have no
// character that must be escaped.
func appendName(dst []byte, p *Policy, l *Limit, limits int) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(append(dst, '"'), p.Name...)
	if limits > 1 {
		dst = append(append(dst, '.'), l.label...)
	}
	return append(dst, '"')
}

func appendParameter(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), min(value, maxInteger), 10)
}

// wholeSeconds converts nanoseconds to seconds, rounded up.
func wholeSeconds(ns int64) int64 {
	seconds := ns / 1e9
	if ns%1e9 > 0 {
		seconds++
	}
	return seconds
}

// more returns the time until more remains of a limit; 0 or Never if there is no such time, or it is not known.
func (l *Limit) more(d *quota.Decision, limited bool) int64 {
	switch {
	case limited && d.Limited:
		return d.RetryAfter
	case d.Remaining >= d.Limit:
		return 0
	case l.Kind == limit.Throttle:
		// The bucket's level is d.ResetAfter. It falls by a nanosecond in each, and there is one unit more
		// when the units after it fit.
		next := (d.Remaining+1)*int64(l.Throttle.EmissionInterval()) - int64(l.Throttle.Tolerance())
		return d.ResetAfter + next
	case l.Kind.Ends():
		return d.ResetAfter
	}
	return 0
}
