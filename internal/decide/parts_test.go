package decide

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"cellserver/internal/store"
)

func TestKeysOfAStep(t *testing.T) {
	key := func(name string) []byte { return []byte(name) }
	request := func(name string) store.LimitRequest { return store.LimitRequest{Key: key(name)} }
	part := func(standing string) Part { return Part{Standing: key(standing)} }
	id := Options{IDAt: 1}
	ab := []store.LimitRequest{request("a"), request("b")}
	st := []Part{part("s"), part("t")}
	for want, k := range map[string]Call{
		"[]":        {},
		"[b a]":     {asked: []store.LimitRequest{request("b"), request("a")}},
		"[b a c]":   {Options: id, Key: key("b"), asked: []store.LimitRequest{request("b"), request("a"), request("c")}},
		"[s a b]":   {Parts: st[:1], asked: ab},
		"[s t a]":   {Parts: []Part{part("s"), part("t"), part("s")}, asked: []store.LimitRequest{request("a")}},
		"[a s t b]": {Options: id, Key: key("a"), Parts: st, asked: ab},
		// The first member is a policy whose limits come last, because it is in shadow mode.
		"[t s a b]": {Options: id, Key: key("t"), Parts: st, asked: ab},
		// A limiter on the key of a standing.
		"[s a]": {Parts: []Part{part("s")}, asked: []store.LimitRequest{request("a"), request("s")}},
	} {
		var names []string
		for _, key := range k.keys() {
			names = append(names, string(key))
		}
		assert.Equal(t, want, "["+strings.Join(names, " ")+"]")
	}
}
