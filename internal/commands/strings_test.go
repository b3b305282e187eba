package commands

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is done to a part of a value costs what the part is long, and not the value: in bytes that are copied while its shard is locked.
func TestAPartOfAValueCostsThatPart(t *testing.T) {
	s := newStill(t)
	c := s.dial()
	c.session.Feed(encode([]string{"SET", "big", strings.Repeat("x", 1<<20-64<<10)}))
	c.session.Sent()
	c.say(t, "APPEND big 0123456789") // which moves it to where there is room for more
	for _, call := range []string{"STRLEN big", "GETRANGE big 500000 500009", "SUBSTR big 0 -900000", "SETRANGE big 500000 0123456789", "APPEND big 0123456789"} {
		const times = 100
		before := s.moved()
		bytes := allocated(func() {
			c.session.Feed([]byte(strings.Repeat(call+"\r\n", times)))
			for c.session.More() {
				c.session.Sent()
				c.session.Resume()
			}
			c.session.Sent()
		})
		most := int64(20)
		if strings.HasPrefix(call, "SUBSTR") {
			most = 100_000
		}
		require.LessOrEqual(t, s.moved()-before, 10*times*most, call)
		require.Less(t, bytes, times*(1000+2*int(most)), call)
	}
}

// moved is how many bytes of values the store has copied while they were locked.
func (s *still) moved() (bytes int64) {
	for _, u := range s.instance.store.Usage() {
		bytes += u.Moved
	}
	return bytes
}
