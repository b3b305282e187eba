package page

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"

	"cellserver/internal/web"
)

// bytesPerBodyByte is the memory of a byte of a body, with the key that is read from it.
const bytesPerBodyByte = 4

// request is the body of a POST.
type request struct {
	Key string `json:"key"` // as unquote reads it; of /bans, a policy; of /explain and /history, the words of a call
}

// action returns a handler that makes calls for a POST. A page of another origin cannot have the browser
// send such a request: it is refused by the headers that browsers add, and without them by its content
// type, which needs the server's consent.
func (p *Page) action(run func(context.Context, *caller, string) (any, error)) http.Handler {
	answerFor := p.forUsers(func(w http.ResponseWriter, r *http.Request, c *caller) {
		defer c.Close()
		var body request
		text, err := web.ReadBody(r, func(bytes int64) error {
			c.Charge(bytesPerBodyByte * int(bytes)) // until the session is closed
			return nil
		})
		if err != nil || json.Unmarshal(text, &body) != nil {
			fail(w, http.StatusBadRequest, "the body must be an object with a key, in JSON")
			return
		}
		key, err := unquote(body.Key)
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		result, err := run(r.Context(), c, key)
		if err != nil {
			fail(w, web.StatusOf(err.Error()), err.Error())
			return
		}
		answer(w, http.StatusOK, result)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case p.origins.Check(r) != nil:
			fail(w, http.StatusForbidden, "requests of other pages are refused")
			return
		case err != nil || kind != "application/json":
			fail(w, http.StatusUnsupportedMediaType, "the content type must be application/json")
			return
		}
		select {
		case p.actions <- struct{}{}:
			defer func() { <-p.actions }()
			answerFor.ServeHTTP(w, r)
		default:
			fail(w, http.StatusServiceUnavailable, errBusy)
		}
	})
}

// refusal is an error reply.
type refusal string

func (r refusal) Error() string { return string(r) }

// ask makes a call. An error reply is an error.
func (c *caller) ask(ctx context.Context, words ...string) (reply, error) {
	r, err := c.call(ctx, words...)
	if err == nil && r.failure() != "" {
		err = refusal(r.failure())
	}
	return r, err
}

// inspection is the answer to POST /inspect.
type inspection struct {
	Key     string            `json:"key"` // in quotes
	Time    int64             `json:"time"`
	Kind    string            `json:"kind"` // none if there is no such key
	Expires int64             `json:"expires_ms"`
	State   map[string]string `json:"state"` // instants are Unix nanoseconds
	Holders []holder          `json:"holders"`
}

// holder is a lease or an open hold of a key.
type holder struct {
	Name    string `json:"name"`    // of the lease's holder, or the ID of the hold, in quotes
	Permits int64  `json:"permits"` // or the quantity that was charged
	Ends    int64  `json:"ends_ms"`
}

// maxShownHolders bounds the holders that are shown.
const maxShownHolders = 50

// inspect shows what a key holds.
func inspect(ctx context.Context, c *caller, key string) (any, error) {
	r, err := c.ask(ctx, "CL.INSPECT", key)
	if err != nil {
		return nil, err
	}
	in := c.instance
	found := &inspection{Key: quote([]byte(key)), Kind: "none", State: make(map[string]string),
		Time: (in.Clock.Now() + in.Clock.Offset()) / 1e6}
	r.pairs(func(name string, value reply) {
		switch name {
		case "kind":
			found.Kind = string(value.text)
		case "expires_ms":
			found.Expires = value.number()
		case "state":
			value.pairs(func(name string, value reply) { found.State[name] = string(value.text) })
		}
	})
	switch {
	case found.Kind == "cl.lease":
		r, err = c.ask(ctx, "CL.HOLDERS", key)
	case found.State["holds"] != "":
		r, err = c.ask(ctx, "CL.HOLDS", key, "COUNT", strconv.Itoa(maxShownHolders))
	default:
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	for _, h := range r.parts[:min(len(r.parts), maxShownHolders)] {
		found.Holders = append(found.Holders, holder{quote(h.parts[0].text), h.parts[1].number(), h.parts[2].number()})
	}
	return found, nil
}

// ban is a subject that a policy bans.
type ban struct {
	Subject string `json:"subject"` // in quotes
	Seconds int64  `json:"seconds"`
	Level   int64  `json:"level"`
	Reason  string `json:"reason"` // in quotes
}

// maxShownBans bounds the bans that are shown. The longest are shown.
const maxShownBans = "20"

// bans lists the subjects that a policy bans. CL.BANS walks all keys, so it is called on request only.
func bans(ctx context.Context, c *caller, policy string) (any, error) {
	r, err := c.ask(ctx, "CL.BANS", policy, maxShownBans)
	if err != nil {
		return nil, err
	}
	found := make([]ban, len(r.parts))
	for i, part := range r.parts {
		part.pairs(func(name string, value reply) {
			switch name {
			case "subject":
				found[i].Subject = quote(value.text)
			case "seconds":
				found[i].Seconds = value.number()
			case "level":
				found[i].Level = value.number()
			case "reason":
				found[i].Reason = quote(value.text)
			}
		})
	}
	return found, nil
}

// deletion is the answer to POST /delete.
type deletion struct {
	Deleted int64 `json:"deleted"`
}

// remove deletes a key.
func remove(ctx context.Context, c *caller, key string) (any, error) {
	r, err := c.ask(ctx, "DEL", key)
	if err != nil {
		return nil, err
	}
	return deletion{r.number()}, nil
}
