package tracking

import (
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/store"
)

// quietStore is a store that announces no changes.
type quietStore struct{}

func (quietStore) Subscribe(store.Listener) func() { return func() {} }

// newTable returns a table with one client that tracks.
func newTable(how *client.Tracker) (*Table, *client.Client) {
	clients := client.NewRegistry(slog.New(slog.DiscardHandler))
	c := clients.New(client.Peer{Wake: func() {}, Cut: func() {}})
	c.SetProtocol(3)
	clients.Add(c)
	t := &Table{Store: quietStore{}, Clients: clients, Busy: new(atomic.Int32)}
	t.Init(0)
	t.setTracker(c, how)
	return t, c
}

// The readers of a key count towards the bound of the table.
func TestReadersOfTrackedKeysAreBounded(t *testing.T) {
	tr, c := newTable(&client.Tracker{})
	tr.bytes.Store(maxTrackedBytes - 100*readerOverhead)
	invalidations := 0
	for reader := range 1000 {
		before := c.PushedBytes()
		tr.record([]byte("k"), c.ID+int64(reader))
		tr.SendPending(true)
		invalidations += min(c.PushedBytes()-before, 1)
	}
	require.LessOrEqual(t, tr.bytes.Load(), int64(maxTrackedBytes))
	require.Equal(t, 1, invalidations, "the client gets one invalidation of the evicted key")
}

// Pending changes are bounded in bytes, however few the keys are.
func TestChangesAreBounded(t *testing.T) {
	const longest = 64 << 10
	tr, c := newTable(&client.Tracker{})
	long := strings.Repeat("k", longest)
	for range 2 * maxChangedBytes / longest {
		tr.addChange(changedKey{key: long, readers: readers{first: c.ID}})
	}
	require.LessOrEqual(t, tr.pending.keyBytes, int64(maxChangedBytes+longest+keyOverhead))
	require.LessOrEqual(t, len(tr.pending.keys), maxChangedBytes/longest+2)
}

// Pending broadcasts are bounded: beyond the bound, they are replaced by a change of all keys.
func TestBroadcastsAreBounded(t *testing.T) {
	tr, _ := newTable(&client.Tracker{Broadcast: true, Prefixes: []string{""}})
	for i := range maxWrittenBytes/keyOverhead + 2 {
		tr.addBroadcast([]byte(strconv.Itoa(i)), 1)
	}
	require.LessOrEqual(t, tr.pending.writtenBytes, maxWrittenBytes+keyOverhead+10)
	require.True(t, tr.pending.keys[0].all)
}

// A client that does not read gets one invalidation of a key for each of its prefixes, however
// often the key changes.
func TestUnreadBroadcastsAreMergedByPrefix(t *testing.T) {
	tr, c := newTable(&client.Tracker{Broadcast: true, Prefixes: []string{"", "k"}})
	for range 3 {
		tr.addBroadcast([]byte("k1"), c.ID)
		tr.SendPending(true)
		require.Equal(t, 2*len(">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\nk1\r\n"), c.PushedBytes())
	}
}
