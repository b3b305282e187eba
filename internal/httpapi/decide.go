package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/policy"
	"cellserver/internal/web"
)

// A gateway's client must not be able to prevent a decision, because policies may allow requests without one. So a
// request is refused if its subject is too long, if the rights of the gateway's user exclude the subject, or if more
// calls use a key than the store can order. A policy in shadow mode refuses nothing: if it cannot be asked, the other
// policies are asked without it.

// decide makes the calls of a request as a user, and answers it.
func (a *API) decide(w http.ResponseWriter, r *http.Request, as *client.Account, asks []ask, limited int) {
	c := r.Context().Value(connKey{}).(*conn)
	k := c.take(w, r, web.Gateway, as) // a gateway has a place
	defer c.release(r, k)
	o, refused := k.takeShort(r, asks)
	if refused != "" && slices.ContainsFunc(asks, isShadow) && !allOf(asks, isShadow) {
		asks = slices.DeleteFunc(asks, isShadow)
		o, refused = k.takeShort(r, asks)
	}
	if len(asks) > 1 && strings.HasPrefix(refused, "OOM") {
		o, asks, refused = k.takeEach(r, asks)
	}
	switch {
	case refused != "":
		a.refuse(w, asks, refused, limited)
	case o.Allowed:
		o.setFields(w.Header())
		w.WriteHeader(http.StatusOK)
	case o.status() == http.StatusForbidden:
		k.answer(w, o, http.StatusForbidden, false) // blocked: nothing says when to come again
	default:
		w.Header()["X-Limited"] = yes
		k.answer(w, o, limited, false)
	}
}

func isShadow(asked ask) bool { return asked.policy.Shadow }

// takeShort is takeAll for subjects that may be too long for a call, or for its keys.
func (k *caller) takeShort(r *http.Request, asks []ask) (o *outcome, refused string) {
	longest := k.conn.api.longestSubject(len(asks))
	if slices.ContainsFunc(asks, func(asked ask) bool { return len(asked.subject) > longest }) {
		return nil, longSubject
	}
	return k.takeAll(r, asks)
}

// longestSubject returns the length of the longest subject of a call that has some, in bytes.
func (a *API) longestSubject(subjects int) int {
	const others = 256 // bytes of a call for each subject: its length, the policy, and options
	limits := a.instance.Limits.Load()
	return min(a.instance.MaxKeySize, limits.Bulk, limits.Query/subjects-others)
}

// takeEach asks each policy by itself until one refuses the request. It is called when a call on all of them has failed
// because memory is full: policies that need no more memory can still decide. without are the policies that cannot, and
// refused says why.
func (k *caller) takeEach(r *http.Request, asks []ask) (o *outcome, without []ask, refused string) {
	var outcomes []policy.Outcome
	for i := range asks {
		o, reason := k.takeAll(r, asks[i:i+1])
		switch {
		case reason != "":
			without, refused = append(without, asks[i]), reason
		case !o.Allowed:
			return o, nil, ""
		default:
			outcomes = append(outcomes, policy.Outcome(*o))
			outcomes[len(outcomes)-1].Fields = slices.Clone(o.Fields)
		}
	}
	if refused != "" {
		return nil, without, refused
	}
	return together(outcomes, true, -1), nil, ""
}

// refuse answers a request whose calls got an error.
func (a *API) refuse(w http.ResponseWriter, asks []ask, reason string, limited int) {
	code, _, _ := strings.Cut(reason, " ")
	switch {
	case allOf(asks, isShadow):
		a.answerWithout(w, asks, reason)
	case reason == longSubject, code == "STOREBUSY":
		w.Header()["X-Limited"] = yes
		writeError(w, limited, reason)
	case code == "NOPERM", code == "NOAUTH":
		w.Header()["X-Cellserver-Error"] = []string{strings.Map(printable, reason)}
		writeError(w, http.StatusForbidden, reason)
	default:
		a.answerWithout(w, asks, reason)
	}
}

// answerWithout answers a request about which there is no decision, as its policies say: if one of them refuses
// such requests, the request is refused.
func (a *API) answerWithout(w http.ResponseWriter, asks []ask, reason string) {
	w.Header()["X-Cellserver-Error"] = []string{strings.Map(printable, reason)}
	for _, asked := range asks {
		if asked.policy.HTTP.Errors == policy.ErrorsRefuse {
			writeError(w, http.StatusServiceUnavailable, reason)
			return
		}
	}
	w.WriteHeader(http.StatusOK)
}

// printable replaces characters that a header must not have, or that its readers may not expect: a reason may
// quote the request.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}
