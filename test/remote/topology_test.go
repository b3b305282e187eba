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
	peer.Until(t, "a connection to the new primary", func() bool { return l.connect(key) && l.Primary(key) != before })
	peer.Until(t, "the value", func() bool {
		r := read(key)
		return !l.send(r) && r.Reply.Status == combine.Done && values(r)[0] == "1"
	})
	assert.Len(t, l.Primaries(), 3)
}

// A replica is told to take over: the old primary still runs, and says MOVED.
func TestManualFailover(t *testing.T) {
	c := peer.StartCluster(t, start, 3, true, nil)
	key := "cl:{b}a" // slot 3300, of the first primary
	l := open(t, c.URL())
	l.join(key)
	before := l.Primary(key)
	l.done(write(set(key, "nil", "1")))
	peer.Ask(t, c.Replicas[0].Addr, "cluster", "failover")
	peer.Says(t, c.Replicas[0].Addr, "role:master", "info", "replication")
	peer.Until(t, "the new primary", func() bool {
		r := read(key)
		if l.send(r) || r.Reply.Status == combine.Redirected {
			l.connect(key)
		}
		return r.Reply.Status == combine.Done && l.Primary(key) != before
	})
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
	peer.Until(t, "a connection to the new primary", func() bool { return l.connect(key) })
	assert.Equal(t, s.Replica.Addr, l.Where(p))
	assert.Equal(t, []string{"1"}, values(l.done(read(key))))
	assert.Equal(t, p, l.Primary(key), "its number stays")
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
	peer.Ask(t, s.Addrs[0], "sentinel", "failover", s.Name)
	peer.Until(t, "the new primary", func() bool {
		r := read(key)
		if l.send(r) {
			l.connect(key)
		}
		return r.Reply.Status == combine.Done && l.Where(l.Primary(key)) == s.Replica.Addr
	})
	assert.Equal(t, []string{"1"}, values(l.done(read(key))))
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
