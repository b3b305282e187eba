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
	memory := c.share()
	defer memory.giveBack()
	calls, several, ok := readCalls(w, r, &memory)
	if !ok {
		return
	}
	k := c.take(account)
	defer c.release(k)
	for _, words := range calls {
		if a.isOffered(words) {
			k.calls = resp.AppendCall(k.calls, words)
		}
	}
	waited := false
	err := k.run(r.Context(), func() { waited = web.KeepOpen(w) == nil })
	status, body := http.StatusOK, make([]byte, 0, 2*len(k.replies)+64)
	if several {
		body = append(body, '[')
	}
	replies := cursor{rest: k.replies}
	for i, words := range calls {
		if i > 0 {
			body = append(body, ',')
		}
		var refused string
		if body, refused = a.appendReply(body, words, &replies, err); !several && refused != "" {
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
	return web.User(w, r, a.instance.Accounts, a.named(r))
}

// named returns the user that the certificate of the peer names; empty for none.
func (a *API) named(r *http.Request) string {
	if r.TLS == nil || a.config.CertificateUser == nil {
		return ""
	}
	return a.config.CertificateUser(*r.TLS)
}

// readCalls reads the body: an array of arguments, or an array of such arrays. If it is neither, readCalls
// answers the request, and ok is false.
func readCalls(w http.ResponseWriter, r *http.Request, memory *share) (calls [][]string, several, ok bool) {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, "ERR the Content-Type must be application/json")
		return nil, false, false
	}
	body, err := readBody(r, memory)
	if err == nil && !memory.take(bytesPerBodyByte*int64(len(body))) {
		err = errMemory
	}
	if err == nil {
		calls, several, err = parseCalls(body)
	}
	if err != nil {
		refuseBody(w, err)
		return nil, false, false
	}
	return calls, several, true
}

// refuseBody answers a request whose body has not arrived, or is not accepted.
func refuseBody(w http.ResponseWriter, err error) {
	if err == errMemory {
		refuseForMemory(w)
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

func parseCalls(body []byte) (calls [][]string, several bool, err error) {
	if !utf8.Valid(body) {
		return nil, false, errBody
	}
	var items []any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // an integer may have more digits than a float64
	if decoder.Decode(&items) != nil || len(items) == 0 {
		return nil, false, errBody
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, false, errBody
	}
	if _, several = items[0].([]any); !several {
		items = []any{items}
	}
	if len(items) > maxCalls {
		return nil, false, errors.New("a request may have at most " + strconv.Itoa(maxCalls) + " calls")
	}
	for _, item := range items {
		words, ok := parseWords(item)
		if !ok {
			return nil, false, errBody
		}
		calls = append(calls, words)
	}
	return calls, several, nil
}

func parseWords(item any) (words []string, ok bool) {
	list, ok := item.([]any)
	for _, word := range list {
		switch word := word.(type) {
		case string:
			words = append(words, word)
		case json.Number:
			words = append(words, word.String())
		default:
			return nil, false
		}
	}
	return words, ok && len(words) > 0
}

// isOffered reports whether a call may be made over HTTP: calls that decide, and those about policies. Others
// change the state of a connection, or are for operators.
func (a *API) isOffered(words []string) bool {
	names := make([][]byte, min(len(words), 2))
	for i := range names {
		names[i] = []byte(words[i])
	}
	row := a.instance.Table.Find(names)
	if row == nil {
		return false
	}
	categories := row.Categories()
	return slices.Contains(categories, "@ratelimit") || slices.Contains(categories, "@policy")
}

func errNotOffered(words []string) string {
	return "NOPERM '" + command.Prefix([]byte(words[0]), 128) + "' is not a command of the categories @ratelimit and @policy"
}

// appendReply appends the reply to a call as JSON. If the reply is an error, it returns its text too. err is
// the reason for which replies may be missing.
func (a *API) appendReply(body []byte, words []string, replies *cursor, err error) (json []byte, refused string) {
	switch {
	case !a.isOffered(words):
		refused = errNotOffered(words)
	case len(replies.rest) == 0:
		refused = errSessionEnded.Error()
		if err != nil {
			refused = err.Error()
		}
	default:
		if text, is := replies.peekError(); is {
			refused = text
		}
		return replies.appendJSON(body), refused
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
