package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/session"
	"cellserver/internal/web"
)

// maxCalls bounds the calls of a request.
const maxCalls = 1000

// calls answers POST /v1: one call or several, whose replies are JSON.
func (a *API) calls(w http.ResponseWriter, r *http.Request) {
	account := a.authorize(w, r)
	if account == nil {
		return
	}
	c := r.Context().Value(connKey{}).(*conn)
	k := c.take(w, r, web.User, account)
	if k == nil {
		return
	}
	defer c.release(r, k)
	calls, several, ok := k.readCalls(w, r)
	if !ok {
		return
	}
	waited := false
	replies, err := k.Do(r.Context(), &k.calls, func() { waited = web.KeepOpen(w) == nil })
	status, body := http.StatusOK, make([]byte, 0, 2*replies.Len()+64)
	if several {
		body = append(body, '[')
	}
	for i, refused := range calls {
		if i > 0 {
			body = append(body, ',')
		}
		if body, refused = appendReply(body, refused, &replies, err); !several && refused != "" {
			status = web.StatusOf(refused)
		}
	}
	if several {
		body = append(body, ']')
	}
	send(w, status, append(body, '\n'), waited)
}

// authorize returns the account as which a request makes calls. If the request is not acceptable, it
// answers it and returns nil.
//
// A browser sends Origin with every POST. A page of any site could make a browser on this machine
// send requests to the loopback address, where there may be no password.
func (a *API) authorize(w http.ResponseWriter, r *http.Request) *client.Account {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, http.StatusMethodNotAllowed, "ERR the method must be POST")
		return nil
	case r.Header["Origin"] != nil:
		writeError(w, http.StatusForbidden, "ERR requests of web pages are not accepted")
		return nil
	}
	return web.UserOf(w, r, a.instance.Accounts, a.named(r))
}

// named returns the user that the certificate of the peer names; empty for none.
func (a *API) named(r *http.Request) string {
	if r.TLS == nil || a.config.CertificateUser == nil {
		return ""
	}
	return a.config.CertificateUser(*r.TLS)
}

// readCalls reads the body: an array of arguments, or an array of such arrays. It appends the calls to k.calls,
// except for calls that are refused, and returns the reason for which each is; empty for none. If the body is
// neither, readCalls answers the request, and ok is false.
func (k *caller) readCalls(w http.ResponseWriter, r *http.Request) (refused []string, several, ok bool) {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, "ERR the Content-Type must be application/json")
		return nil, false, false
	}
	body, err := web.ReadBody(r, k.memory.take)
	if err == nil {
		err = k.memory.take(bytesPerBodyByte * int64(len(body)))
	}
	if err == nil {
		refused, several, err = k.parseCalls(body)
	}
	if err != nil {
		refuseBody(w, err)
		return nil, false, false
	}
	return refused, several, true
}

// refuseBody answers a request whose body has not arrived, or is not accepted.
func refuseBody(w http.ResponseWriter, err error) {
	switch err {
	case errMemory:
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, err.Error())
		return
	case errNever:
		writeError(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, "ERR the body is longer than "+
			strconv.FormatInt(tooLarge.Limit, 10)+" bytes")
		return
	}
	writeError(w, http.StatusBadRequest, "ERR "+err.Error())
}

var errBody = errors.New("the body must be a JSON array of arguments, which are strings and numbers, or an array of such arrays")

// parseCalls reads the calls of a body. It reads word by word, because an array of JSON with short words takes many
// times the memory of its text.
func (k *caller) parseCalls(body []byte) (refused []string, several bool, err error) {
	if !utf8.Valid(body) {
		return nil, false, errBody
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()         // an integer may have more digits than a float64
	next := func() json.Token { // nil if there is none
		token, _ := decoder.Token()
		return token
	}
	if next() != json.Delim('[') {
		return nil, false, errBody
	}
	token := next()
	for several = token == json.Delim('['); ; {
		if len(refused) == maxCalls {
			return nil, false, errors.New("a request may have at most " + strconv.Itoa(maxCalls) + " calls")
		}
		if several {
			token = next()
		}
		reason, ok := k.parseCall(token, next)
		if !ok {
			return nil, false, errBody
		}
		refused = append(refused, reason)
		if several {
			token = next()
		}
		if !several || token == json.Delim(']') {
			break
		}
		if token != json.Delim('[') {
			return nil, false, errBody
		}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, false, errBody
	}
	return refused, several, nil
}

// parseCall reads a call up to the end of its array, given its first word, and appends it to k.calls unless it is
// refused. ok is false if it has no words, or other tokens than strings and numbers.
func (k *caller) parseCall(token json.Token, next func() json.Token) (refused string, ok bool) {
	var names [2][]byte
	n := 0
	for ; token != json.Delim(']'); token = next() {
		var word string
		switch token := token.(type) {
		case string:
			word = token
		case json.Number:
			word = token.String()
		default:
			return "", false
		}
		if n < len(names) {
			names[n] = []byte(word)
		}
		n++
		k.calls.AddWord(word)
	}
	switch {
	case n == 0:
		return "", false
	case !k.conn.api.isOffered(names[:min(n, len(names))]):
		k.calls.DropCall()
		return errNotOffered(names[0]), true
	}
	k.calls.EndCall()
	return "", true
}

// isOffered reports whether a call may be made over HTTP: calls that decide, and those about policies. Others
// change the state of a connection, or are for operators. names are the first words of the call.
func (a *API) isOffered(names [][]byte) bool {
	row := a.instance.Table.Find(names)
	if row == nil {
		return false
	}
	categories := row.Categories()
	return slices.Contains(categories, "@ratelimit") || slices.Contains(categories, "@policy")
}

func errNotOffered(name []byte) string {
	return "NOPERM '" + command.Prefix(name, 128) + "' is not a command of the categories @ratelimit and @policy"
}

// appendReply appends the reply to a call as JSON, given the reason for which the call was refused; empty if it was
// made. If the reply is an error, it returns its text too. err is the reason for which replies may be missing.
func appendReply(body []byte, refused string, replies *resp.Replies, err error) (json []byte, text string) {
	switch {
	case refused != "":
	case replies.Len() == 0:
		refused = session.ErrEnded.Error()
		if err != nil {
			refused = err.Error()
		}
	default:
		refused, _ = replies.PeekError()
		return appendJSON(body, replies), refused
	}
	return appendError(body, refused), refused
}

var jsonType = []string{"application/json"}

func writeError(w http.ResponseWriter, status int, text string) {
	send(w, status, append(appendError(nil, text), '\n'), false)
}

// send sends a response in JSON, which browsers must not take for anything else.
func send(w http.ResponseWriter, status int, body []byte, waited bool) {
	header := w.Header()
	header["X-Content-Type-Options"] = noSniff
	if header["Content-Type"] == nil {
		header["Content-Type"] = jsonType
	}
	deliver(w, status, body, waited)
}

// deliver sends a response. After a call that has waited, the time limits of the request have been lifted, and
// the response has a limit of its own.
func deliver(w http.ResponseWriter, status int, body []byte, waited bool) {
	if waited {
		deliverInTime(w, status, body)
		return
	}
	if len(body) > maxMeasured {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}

// maxMeasured is the length of the longest body whose Content-Length net/http adds by itself, which is cheaper.
// It is less than net/http's buffer.
const maxMeasured = 1 << 10

func deliverInTime(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	defer web.WriteWithin(w, web.WriteTimeout)()
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_ = http.NewResponseController(w).Flush()
}
