package remote

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/test/peer"
)

// A slot moves, key by key: ASK leads to the server that gets the slot, and MOVED changes the known
// owner.
func TestSlotMoves(t *testing.T) {
	c := peer.StartCluster(t, start, 2, false, nil)
	const key, moved = "cl:{foo}a", "cl:{foo}b" // slot 12182, of the second primary
	from, to := c.Primaries[1], c.Primaries[0]
	slot := backend.Slot(key)
	l := open(t, c.URL())
	source := l.Primary(key)
	l.join(key)
	l.done(write(set(key, "nil", "1"), set(moved, "nil", "2")))

	peer.Ask(t, to.Addr, "cluster", "setslot", slot, "importing", peer.Ask(t, from.Addr, "cluster", "myid"))
	peer.Ask(t, from.Addr, "cluster", "setslot", slot, "migrating", peer.Ask(t, to.Addr, "cluster", "myid"))
	peer.Ask(t, from.Addr, "migrate", "127.0.0.1", to.Port, moved, 0, 10_000)

	l.ends(combine.Later, write(set(key, "1", "x"), set(moved, "2", "x"))) // TRYAGAIN
	l.done(write(set(key, "1", "3")))
	r := l.ends(combine.Redirected, write(set(moved, "2", "4")))
	require.True(t, r.Reply.Ask)
	target := r.Reply.Asked
	assert.NotEqual(t, source, target)
	connection := combine.Batch{Primary: target, Connect: true}
	l.Do(&connection)
	require.False(t, connection.Failed)
	r.Asking = true
	require.False(t, l.sendTo(target, r))
	assert.Equal(t, combine.Done, r.Reply.Status)
	assert.Equal(t, source, l.Primary(key), "ASK is for one request")

	peer.Ask(t, from.Addr, "migrate", "127.0.0.1", to.Port, key, 0, 10_000)
	for _, s := range c.Primaries {
		peer.Ask(t, s.Addr, "cluster", "setslot", slot, "node", peer.Ask(t, to.Addr, "cluster", "myid"))
	}
	stale := read(key)
	require.False(t, l.sendTo(source, stale))
	assert.Equal(t, combine.Redirected, stale.Reply.Status)
	assert.False(t, stale.Reply.Ask)
	assert.Equal(t, target, l.Primary(key), "MOVED")
	assert.Equal(t, []string{"3", "4"}, values(l.done(read(key, moved))))
}

// A primary of a cluster dies, and its replica takes its slots.
func TestClusterFailover(t *testing.T) {
	c := peer.StartCluster(t, start, 3, true, nil)
	const key = "cl:{foo}a"
	l := open(t, c.URL())
	l.join(key)
	before := l.Primary(key)
	l.done(write(set(key, "nil", "1")))
	peer.Ask(t, l.Where(before), "wait", 1, 10_000)
	c.Kill(t, l.Where(before))
	lost := read(key)
	assert.True(t, l.send(lost))
	value := l.readAfterFailover(key, func() bool { return l.Primary(key) != before })
	assert.Equal(t, "1", value)
	peer.Until(t, "three primaries are known", func() bool { return len(l.Primaries()) == 3 })
}

// readAfterFailover reads a key until a server answers for which moved holds, and returns the value.
// It opens a connection each time that there is none or the reply is MOVED, as often as it takes: in
// a busy cluster, a node may name the old primary after another one has named the new one.
func (l *link) readAfterFailover(key string, moved func() bool) (value string) {
	l.t.Helper()
	peer.Until(l.t, "a reply of the new primary", func() bool {
		r := read(key)
		if l.send(r) || r.Reply.Status == combine.Redirected {
			l.connect(key)
		}
		if r.Reply.Status != combine.Done || !moved() {
			return false
		}
		value = values(r)[0]
		return true
	})
	return value
}

// A replica is told to take over: the old primary still runs, and says MOVED.
func TestManualFailover(t *testing.T) {
	c := peer.StartCluster(t, start, 3, true, nil)
	key := "cl:{b}a" // slot 3300, of the first primary
	l := open(t, c.URL())
	l.join(key)
	before := l.Primary(key)
	l.done(write(set(key, "nil", "1")))
	c.FailOver(t, c.Replicas[0])
	l.readAfterFailover(key, func() bool { return l.Primary(key) != before })
	assert.Equal(t, c.Replicas[0].Addr, l.Where(l.Primary(key)))
}

// Sentinels replace a primary that was killed.
func TestSentinelFailover(t *testing.T) {
	s := peer.StartSentinels(t, start, nil)
	const key = "cl:k"
	l := open(t, s.URL())
	l.join(key)
	p := l.Primary(key)
	l.done(write(set(key, "nil", "1")))
	peer.Ask(t, s.Primary.Addr, "wait", 1, 10_000)
	s.Kill(t)
	assert.True(t, l.send(read(key)))
	value := l.readAfterFailover(key, func() bool { return l.Where(p) == s.Replica.Addr })
	assert.Equal(t, "1", value)
	assert.Equal(t, p, l.Primary(key), "the primary keeps its number")
}

// When the Sentinels name another primary while the old one still runs, the connections to the old
// one are closed.
func TestSentinelSwitch(t *testing.T) {
	s := peer.StartSentinels(t, start, nil)
	const key = "cl:k"
	l := open(t, s.URL())
	l.join(key)
	l.done(write(set(key, "nil", "1")))
	peer.Ask(t, s.Primary.Addr, "wait", 1, 10_000)
	s.FailOver(t)
	value := l.readAfterFailover(key, func() bool { return l.Where(l.Primary(key)) == s.Replica.Addr })
	assert.Equal(t, "1", value)
}

// If a URL does not fit its deployment, the error says so.
func TestWrongDeployments(t *testing.T) {
	s := start(t)
	replica := start(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", s.Port))
	peer.Says(t, replica.Addr, "master_link_status:up", "info", "replication")
	node := peer.StartCluster(t, start, 2, false, nil)
	for url, why := range map[string]string{
		"redis://" + replica.Addr:                "is a replica",
		"redis://" + node.Addrs[1]:               "redis+cluster://",
		"redis+sentinel://" + s.Addr + "/limits": "no Sentinel says",
		"redis://nobody:nothing@" + s.Addr:       "WRONGPASS",
	} {
		l := open(t, url)
		assert.False(t, l.connect("cl:k"), url)
		assert.ErrorContains(t, l.Trouble(l.Primary("cl:k")), why)
	}
	_, err := backend.CheckStore(t.Context(), config(t, "redis+cluster://"+s.Addr))
	assert.ErrorContains(t, err, "cluster support disabled")
}
