package httpapi

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/session"
	"cellserver/internal/web"
)

// take answers POST /v1/take/{policy}: one call of CL.TAKE, whose decision is the status of the response.
func (a *API) take(w http.ResponseWriter, r *http.Request, policy string) {
	account := a.authorize(w, r)
	if account == nil {
		return
	}
	var given parameters
	refused := given.read(r.URL.RawQuery)
	if refused != "" {
		writeError(w, http.StatusBadRequest, refused)
		return
	}
	if len(given.values[subjectAt]) > a.longestSubject(1) {
		writeError(w, http.StatusForbidden, longSubject) // a client may have chosen it
		return
	}
	// A body says nothing. A call that waits has no time limit, so its body must have arrived: see web.KeepOpen.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		refuseBody(w, err)
		return
	}
	c := r.Context().Value(connKey{}).(*conn)
	k := c.take(w, r, web.User, account)
	if k == nil {
		return
	}
	defer c.release(r, k)
	given.addCall(&k.calls, a.names().take, policy)
	waited := false
	_, refused = k.decide(r, func() { waited = web.KeepOpen(w) == nil })
	if refused != "" {
		status := web.StatusOf(refused)
		if known, ok := takeStatuses[firstWord(refused)]; ok {
			status = known
		} else if strings.HasPrefix(refused, "ERR no such policy") {
			status = http.StatusNotFound
		}
		send(w, status, append(appendError(nil, refused), '\n'), waited)
		return
	}
	o := (*outcome)(&k.outcomes.All()[0])
	status := o.status()
	if given.given[decisionAt] {
		status = http.StatusOK
	}
	k.answer(w, o, status, waited)
}

// takeStatuses are the statuses of errors about holds, by their first words.
var takeStatuses = map[string]int{
	"NOHOLD": http.StatusNotFound, "HOLDLAPSED": http.StatusGone,
	"HOLDSETTLED": http.StatusConflict, "HOLDOPEN": http.StatusConflict,
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// parameters are the parameters of a request to take.
type parameters struct {
	values [command.MaxArgs]string
	given  [command.MaxArgs]bool
}

// The indexes of parameters.
const (
	subjectAt = iota
	quantityAt
	modeAt
	decisionAt
	optionsAt // from here on, parameters have the names of options of CL.TAKE, except for the ttl
)

var parameterNames = slices.Concat(
	[]string{"subject", "quantity", "mode", "decision", "leave"}, namesOf(decide.CallArgs), []string{"ttl"},
)

// The indexes of the parameters about holds. The last parameter is the ttl, which is the second word of HOLD.
var (
	holdAt   = slices.Index(parameterNames, "hold")
	settleAt = slices.Index(parameterNames, "settle")
	ttlAt    = len(parameterNames) - 1
)

// namesOf returns the names of options as parameters, in lower case.
func namesOf(options []command.Arg) (names []string) {
	for i := range options {
		names = append(names, strings.ToLower(options[i].Tokens[0]))
	}
	return names
}

// read reads a query. If it is wrong, refused says why. It uses no url.Values, which is a map.
func (p *parameters) read(query string) (refused string) {
	p.values[quantityAt] = "1"
	for query != "" {
		var pair string
		if pair, query, _ = strings.Cut(query, "&"); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, wrongName := url.QueryUnescape(name)
		value, wrongValue := url.QueryUnescape(value)
		if wrongName != nil || wrongValue != nil || strings.Contains(pair, ";") {
			return "ERR the query is malformed"
		}
		i := slices.Index(parameterNames, name)
		switch {
		case i < 0:
			return "ERR the query has an unknown parameter: " + name
		case p.given[i]:
			return "ERR the query has the parameter " + name + " twice"
		}
		p.values[i], p.given[i] = value, true
	}
	switch mode := strings.ToLower(p.values[modeAt]); {
	case p.given[modeAt] && !slices.Contains(modes, mode):
		return "ERR the mode must be take, peek, upto or force"
	case p.given[decisionAt] && p.values[decisionAt] != "body":
		return "ERR the decision must be body, or not be there"
	case p.given[holdAt] != p.given[ttlAt]:
		return "ERR hold and ttl go together"
	case p.given[settleAt] && !p.given[quantityAt]:
		return "ERR settle needs a quantity: what was used in fact"
	case !p.given[subjectAt]: // an empty subject is a subject like any other
		return "ERR the query must have a subject"
	}
	return ""
}

// modes are the values of the parameter mode; the first is the default.
var modes = []string{"take", "peek", "upto", "force"}

// addCall adds the call. take is the name of CL.TAKE.
func (p *parameters) addCall(to *session.Calls, take, policy string) {
	buffer := [6 + 2*command.MaxArgs]string{take, p.values[subjectAt], policy, p.values[quantityAt], "VERBOSE"}
	words := buffer[:5]
	if mode := p.values[modeAt]; mode != "" && !strings.EqualFold(mode, modes[0]) {
		words = append(words, mode)
	}
	for i := optionsAt; i < ttlAt; i++ {
		if p.given[i] { // CL.TAKE refuses an empty value
			words = append(words, parameterNames[i], p.values[i])
		}
		if i == holdAt && p.given[i] {
			words = append(words, p.values[ttlAt])
		}
	}
	to.Add(words...)
}
