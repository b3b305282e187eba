package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// verify compares the keys of a server after a fault with the histories of the clients, and begins
// new histories.
func (l *load) verify(server *peer.Server, promised time.Duration) {
	l.t.Helper()
	f := l.look(server)
	for _, err := range l.contradictions(f, promised) {
		assert.NoError(l.t, err)
	}
	if l.t.Failed() {
		l.t.FailNow()
	}
	l.begin(f)
}

// found has the keys of a server, without the ballast.
type found struct {
	keys      []string // "database key"
	states    map[*subject][]string
	views     map[*subject]view
	counts    view
	awaited   view
	databases [2]view // the databases that are swapped
}

// in returns the keys of a database.
func (f *found) in(database int) (keys []string) {
	for _, key := range f.keys {
		if strings.HasPrefix(key, fmt.Sprint(database, " ")) {
			keys = append(keys, key)
		}
	}
	return keys
}

// look reads all keys from a server.
func (l *load) look(server *peer.Server) *found {
	l.t.Helper()
	c, err := dial(server.Addr)
	require.NoError(l.t, err)
	defer c.Close()
	f := &found{states: map[*subject][]string{}, views: map[*subject]view{}}
	for database := range 16 {
		for _, key := range strings.Fields(strings.Trim(mustAsk(l.t, c, database, []string{"KEYS [^b]*"})[0], "[]")) {
			f.keys = append(f.keys, fmt.Sprint(database, " ", strings.Trim(key, `",`)))
		}
	}
	for _, s := range slices.Concat(l.subjects...) {
		f.views[s], f.states[s] = s.look(l.t, c)
	}
	f.counts.text = strings.Join(mustAsk(l.t, c, 0, gets(countKeys)), " ")
	f.awaited.text = mustAsk(l.t, c, 0, []string{"GET " + awaitedKey})[0]
	for i, database := range swapDatabases {
		f.databases[i].text = strings.Join(mustAsk(l.t, c, database, gets(swapKeys)), " ")
	}
	return f
}

// begin begins new histories with the keys that were found.
func (l *load) begin(f *found) {
	for s, v := range f.views {
		s.state, s.steps = f.states[s], []step{{after: v.later()}}
	}
	count, _, _ := strings.Cut(f.counts.text, " ")
	l.counts.shared = shared{name: "counts", start: max(number(count), 0), answered: map[int]time.Duration{},
		view: l.counts.view}
	l.awaited = &history{name: awaitedKey, steps: []step{{after: f.awaited}}}
	l.swaps.begin(f.databases)
}

// contradictions returns the contradictions between the keys that were found and the histories.
func (l *load) contradictions(f *found, promised time.Duration) (errs []error) {
	for _, key := range f.keys {
		if !l.knows(key) {
			errs = append(errs, fmt.Errorf("a key that no client has written: %s", key))
		}
	}
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for s, v := range f.views {
		check(s.check(v, promised))
	}
	check(l.counts.check(f.counts, promised))
	check(l.awaited.check(f.awaited, always))
	check(l.swaps.check(f.databases, promised))
	return errs
}

func gets(keys []string) (calls []string) {
	for _, key := range keys {
		calls = append(calls, "GET "+key)
	}
	return calls
}

// mustAsk returns the replies to calls in a database, with strings as they are stored.
func mustAsk(t *testing.T, c *conn, database int, calls []string) []string {
	t.Helper()
	replies, err := c.ask(append([]string{fmt.Sprint("SELECT ", database)}, calls...)...)
	require.NoError(t, err)
	for i, r := range replies {
		require.False(t, isError(r), "%s: %s", calls, r)
		if text, err := strconv.Unquote(r); err == nil {
			replies[i] = text
		}
	}
	return replies[1:]
}

// look returns the view of a subject.
func (s *subject) look(t *testing.T, c *conn) (found view, state []string) {
	for _, show := range s.shows {
		asked := now()
		reply := mustAsk(t, c, show.database, []string{show.call})[0]
		switch {
		case strings.HasPrefix(show.call, "PTTL"):
			if ttl := number(reply); ttl > 0 {
				in := time.Duration(ttl) * time.Millisecond
				found.until = span{asked + in, now() + in + time.Millisecond}
			}
			reply = ""
		case strings.HasPrefix(show.call, "CL.HOLDERS"):
			reply = holders(reply)
		case strings.HasPrefix(show.call, "CL.INSPECT"):
			reply = shownStanding(reply)
		case strings.HasPrefix(show.call, "CL."):
			reply = strings.Split(reply, ", ")[2]
		}
		state = append(state, reply)
	}
	found.text = strings.Join(state, " ")
	return found, state
}

// holders returns the holders of leases, in the order in which they acquired them.
func holders(reply string) string {
	var names []string
	for _, part := range strings.Split(reply, holder(""))[1:] {
		name, _, _ := strings.Cut(part, `"`)
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return number(a) - number(b) })
	return strings.Join(names, ",")
}

// knows reports whether a key is one that clients write.
func (l *load) knows(key string) bool {
	database, name, _ := strings.Cut(key, " ")
	for _, s := range slices.Concat(l.subjects...) {
		if slices.ContainsFunc(s.shows, func(s show) bool { return s.key == name && fmt.Sprint(s.database) == database }) {
			return true
		}
	}
	return database == "0" && (name == awaitedKey || slices.Contains(countKeys, name)) ||
		slices.Contains(swapKeys, name) &&
			(database == fmt.Sprint(swapDatabases[0]) || database == fmt.Sprint(swapDatabases[1]))
}
