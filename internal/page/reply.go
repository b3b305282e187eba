package page

import (
	"bytes"
	"errors"
	"strconv"

	"cellserver/internal/resp"
)

// reply is a reply in RESP2, as a tree.
type reply struct {
	kind  byte    // the first byte; '_' for a null
	text  []byte  // of a reply that is no array
	parts []reply // the elements of an array
}

// readReply reads the next reply, which it copies.
func readReply(from *resp.Replies) reply {
	token := from.Next()
	r := reply{kind: token.Kind, text: bytes.Clone(token.Text)}
	for range token.N {
		r.parts = append(r.parts, readReply(from))
	}
	return r
}

// failure returns the text of an error reply, else an empty string.
func (r reply) failure() string {
	if r.kind == '-' {
		return string(r.text)
	}
	return ""
}

// number returns the value of an integer reply.
func (r reply) number() int64 {
	n, _ := strconv.ParseInt(string(r.text), 10, 64)
	return n
}

// pairs calls visit for the fields of a map, which is an array of names and values in RESP2.
func (r reply) pairs(visit func(name string, value reply)) {
	for i := 0; i+1 < len(r.parts); i += 2 {
		visit(string(r.parts[i].text), r.parts[i+1])
	}
}

// quote returns a name as redis-cli prints it. So a name of any bytes can be shown, copied, and given
// back to unquote.
func quote(name []byte) string { return string(resp.AppendQuoted(nil, name)) }

// unquote returns the name that a person has entered: as redis-cli prints it if it begins with a quote,
// otherwise as it stands.
func unquote(text string) (string, error) {
	if len(text) == 0 || text[0] != '"' {
		return text, nil
	}
	name, err := strconv.Unquote(text)
	if err != nil {
		return "", errors.New(`a name in quotes ends with a quote, and its escapes are those of redis-cli: \n \r \t \b \a \" \\ \xHH`)
	}
	return name, nil
}
