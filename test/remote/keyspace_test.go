package remote

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/test/peer"
)

func text10(n int) string { return strconv.Itoa(n) }

// scan returns all keys that match, each once, in alphabetical order.
func (l *link) scan(pattern string) (all []string) {
	for cursor := uint64(0); ; {
		keys, next, err := l.Scan(l.t.Context(), 0, cursor, pattern, 7)
		require.NoError(l.t, err)
		all = append(all, keys...)
		if cursor = next; cursor == 0 {
			slices.Sort(all)
			return slices.Compact(all)
		}
	}
}

// testKeyspace asks about all keys, and removes them.
func testKeyspace(t *testing.T, l *link) {
	_, err := l.Flush(t.Context(), 0)
	require.NoError(t, err)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("key%03d", i))
		l.everywhere(call("SET", "cl:"+names[i], "v"))
	}
	turn := &combine.Request{Kind: combine.TurnOnly,
		Turn: combine.Turn{Op: combine.TakeTurn, Key: "cl:key001", Holder: 1, Span: 1e12}}
	require.False(t, l.sendTo(l.Primary("cl:key001"), turn))
	assert.Equal(t, names, l.scan("*"))
	assert.Equal(t, names[120:130], l.scan("key12?"))
	assert.Empty(t, l.scan("cl:*"))
	size, err := l.DBSize(t.Context(), 0)
	require.NoError(t, err)
	assert.EqualValues(t, 300, size)
	seen := map[string]bool{}
	for range 50 {
		key, ok, err := l.RandomKey(t.Context(), 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Contains(t, names, key)
		seen[key] = true
	}
	assert.Greater(t, len(seen), 1)
	removed, err := l.Flush(t.Context(), 0)
	require.NoError(t, err)
	assert.EqualValues(t, 301, removed, "the turn key too")
	_, ok, err := l.RandomKey(t.Context(), 0)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Empty(t, l.scan("*"))
}

// everywhere sends a request to the primary of its key, and connects to it if necessary.
func (l *link) everywhere(r *combine.Request) {
	l.t.Helper()
	if l.send(r) && r.Reply.Status == combine.Unsent {
		l.join(r.Parts[0].Key)
		l.send(r)
	}
	require.Equal(l.t, combine.Done, r.Reply.Status)
}

func TestKeyspace(t *testing.T) {
	single := start(t)
	cluster := peer.StartCluster(t, start, 3, true, nil)
	for name, url := range map[string]string{"single": "redis://" + single.Addr, "cluster": cluster.URL()} {
		t.Run(name, func(t *testing.T) { testKeyspace(t, open(t, url)) })
	}
}

// Keys with other prefixes are neither shown nor removed, whatever the prefix contains.
func TestOtherPrefixes(t *testing.T) {
	s := start(t)
	for _, prefix := range []string{"", "a*", "a?b[c]", `a\`} {
		peer.Ask(t, s.Addr, "flushall")
		l := open(t, "redis://"+s.Addr, func(c *backend.Config) { c.Prefix = prefix })
		peer.Ask(t, s.Addr, "mset", prefix+"1", "v", prefix+"2", "v", "axbc1", "v", "ax", "v", "zz", "v")
		peer.Ask(t, s.Addr, "select", 0)
		if prefix == "" {
			assert.Equal(t, []string{"1", "2", "ax", "axbc1", "zz"}, l.scan("*"))
			continue
		}
		assert.Equal(t, []string{"1", "2"}, l.scan("*"), prefix)
		size, err := l.DBSize(t.Context(), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 2, size)
		key, ok, err := l.RandomKey(t.Context(), 0)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Contains(t, []string{"1", "2"}, key)
		removed, err := l.Flush(t.Context(), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 2, removed)
		assert.EqualValues(t, 3, peer.Ask(t, s.Addr, "dbsize"))
	}
}

// Databases are separate, and each has its own connections.
func TestDatabases(t *testing.T) {
	s := start(t)
	l := open(t, "redis://"+s.Addr)
	for database := range 3 {
		batch := combine.Batch{Database: database, Connect: true}
		l.Do(&batch)
		require.False(t, batch.Failed)
		r := call("SET", "cl:k", text10(database))
		batch = combine.Batch{Database: database, Requests: []*combine.Request{r}}
		l.Do(&batch)
		require.Equal(t, combine.Done, r.Reply.Status)
	}
	removed, err := l.Flush(t.Context(), 1)
	require.NoError(t, err)
	assert.EqualValues(t, 1, removed)
	for database, size := range []int64{1, 0, 1} {
		got, err := l.DBSize(t.Context(), database)
		require.NoError(t, err)
		assert.Equal(t, size, got)
	}
	_, err = l.DBSize(t.Context(), 99)
	assert.ErrorIs(t, err, combine.ErrDown)
	assert.ErrorContains(t, err, "DB index is out of range")
}
