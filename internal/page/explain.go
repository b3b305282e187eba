package page

import (
	"context"

	"cellserver/internal/resp"
)

// explanation is the answer to POST /explain.
type explanation struct {
	Allowed bool             `json:"allowed"`
	Read    int64            `json:"read"` // Unix milliseconds
	Why     []string         `json:"why"`
	Limits  []explainedLimit `json:"limits"`
}

// explainedLimit is a limit of the explained call.
type explainedLimit struct {
	Name      string `json:"name"`
	Key       string `json:"key"` // in quotes
	Size      int64  `json:"size"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	Full      int64  `json:"full_ms"`
}

// explain explains a call, whose words are separated by blanks, and may be quoted as in redis-cli.
func explain(ctx context.Context, c *caller, line string) (any, error) {
	words, err := splitCall(line)
	if err != nil {
		return nil, err
	}
	r, err := c.ask(ctx, append([]string{"CL.EXPLAIN"}, words...)...)
	if err != nil {
		return nil, err
	}
	found := new(explanation)
	r.pairs(func(name string, value reply) {
		switch name {
		case "allowed":
			found.Allowed = value.number() == 1
		case "read":
			found.Read = value.number()
		case "why":
			for _, line := range value.parts {
				found.Why = append(found.Why, string(line.text))
			}
		case "limits":
			for _, limit := range value.parts {
				found.Limits = append(found.Limits, readLimit(limit))
			}
		}
	})
	return found, nil
}

func readLimit(r reply) (l explainedLimit) {
	r.pairs(func(name string, value reply) {
		switch name {
		case "limit":
			l.Name = string(value.text)
		case "key":
			l.Key = quote(value.text)
		case "size":
			l.Size = value.number()
		case "used":
			l.Used = value.number()
		case "remaining":
			l.Remaining = value.number()
		case "full_ms":
			l.Full = value.number()
		}
	})
	return l
}

// errQuotes is the error of a line that cannot be split into words.
const errQuotes refusal = `ERR unbalanced quotes: write "a key", 'a key' or "a \"key\""`

// splitCall splits a line into words with the protocol's reader of inline commands. The blank before the line keeps the
// reader from taking a line that begins with * for an array of the protocol.
func splitCall(line string) (words []string, err error) {
	long := len(line) + len(" \n") + 1
	r := resp.NewReader(resp.Limits{Bulk: long, Words: long, Inline: long, Query: long})
	r.Feed([]byte(" " + line + "\n"))
	read, err := r.Next()
	if err != nil {
		return nil, errQuotes
	}
	for _, word := range read {
		words = append(words, string(word))
	}
	return words, nil
}
