package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"cellserver/internal/web"
)

// options are the parameters of a request to take, with the option of CL.TAKE for each.
var options = [...]struct{ parameter, option string }{{"leave", "LEAVE"}, {"wait", "WAIT"}, {"id", "ID"}}

// take answers POST /v1/take/{policy}: one call of CL.TAKE, whose decision is the status of the response.
func (a *API) take(w http.ResponseWriter, r *http.Request, policy string) {
	account := a.authorize(w, r)
	if account == nil {
		return
	}
	words, inBody, refused := takeCall(policy, r.URL.RawQuery)
	if refused != "" {
		writeError(w, http.StatusBadRequest, refused)
		return
	}
	c := r.Context().Value(connKey{}).(*conn)
	k := c.take(account)
	defer c.release(k)
	k.calls = appendCall(k.calls, words)
	waited := false
	err := k.run(r.Context(), func() { waited = web.KeepOpen(w) == nil })
	replies := cursor{rest: k.replies}
	refused, isError := replies.peekError()
	if len(replies.rest) == 0 {
		refused, isError = errSessionEnded.Error(), true
		if err != nil {
			refused = err.Error()
		}
	}
	if isError {
		status := statusOf(refused)
		if strings.HasPrefix(refused, "ERR no such policy") {
			status = http.StatusNotFound
		}
		send(w, status, append(appendError(nil, refused), '\n'), waited)
		return
	}
	o := replies.outcome()
	status := o.status()
	if inBody {
		status = http.StatusOK
	}
	o.answer(w, status, waited)
}

// takeCall returns the call for the parameters of a request. inBody means that the status is 200 also for a
// call that is refused. If the parameters are wrong, refused says why.
func takeCall(policy, query string) (words []string, inBody bool, refused string) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, false, "ERR the query is malformed"
	}
	take := func(name, otherwise string) (value string) {
		switch given := values[name]; {
		case len(given) > 1:
			refused = "ERR the query has the parameter " + name + " twice"
		case len(given) == 0:
			return otherwise
		default:
			value = given[0]
		}
		delete(values, name)
		return value
	}
	subject := take("subject", "")
	words = []string{"CL.TAKE", subject, policy, take("quantity", "1")}
	switch mode := strings.ToLower(take("mode", "take")); mode {
	case "take":
	case "peek", "upto", "force":
		words = append(words, mode)
	default:
		return nil, false, "ERR the mode must be take, peek, upto or force"
	}
	words = append(words, "VERBOSE")
	for _, o := range options {
		if value := take(o.parameter, ""); value != "" {
			words = append(words, o.option, value)
		}
	}
	inBody = take("decision", "status") == "body"
	switch {
	case refused != "":
		return nil, false, refused
	case subject == "":
		return nil, false, "ERR the query must have a subject"
	}
	for name := range values {
		return nil, false, "ERR the query has an unknown parameter: " + name
	}
	return words, inBody, ""
}
