package client

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Type returns the type of the client that CLIENT LIST TYPE and CLIENT KILL TYPE select: PUBSUB or
// NORMAL.
func (c *Client) Type() string {
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	if c.Profile.Subscriptions != [SubscriptionKinds]int{} {
		return "PUBSUB"
	}
	return "NORMAL"
}

// Line returns the client's line in CLIENT LIST, with Redis's fields. latest is the name of its
// latest command, nil for none. words are the words of the current call if the client itself makes it,
// otherwise nil.
func (c *Client) Line(now int64, latest *string, words [][]byte) string {
	m, p := c.Memory(words), &c.Profile
	p.Mu.Lock()
	defer p.Mu.Unlock()
	name, events := "NULL", "r"
	if latest != nil {
		name = *latest
	}
	if m.Replies+m.PiecesAndMail > 0 {
		events = "rw"
	}
	seconds := func(since int64) string { return strconv.FormatInt(max(now-since, 0)/1e9, 10) }
	queued := c.Counts.Queued.Load()>>32 - 1 // -1 outside a transaction
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%s idle=%s flags=%s db=%d sub=%d psub=%d ssub=%d "+
		"multi=%d watch=%d qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=%d rbp=0 obl=%d oll=%d omem=%d tot-mem=%d events=%s "+
		"cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s "+
		"io-thread=0 tot-net-in=%d tot-net-out=%d tot-cmds=%d\n",
		c.ID, c.Peer.Remote, c.Peer.Local, c.Peer.FD, p.Name, seconds(c.Opened), seconds(c.LastSeen.Load()), c.flags(),
		p.Database, p.Subscriptions[ToChannel], p.Subscriptions[ToPattern], p.Subscriptions[ToShardChannel],
		queued, c.Counts.Watched.Load(),
		m.Unread, m.Free, m.Words, m.Queued, m.ReplyBuffer, m.Replies, m.Pieces, m.PiecesAndMail, m.Total, events,
		name, c.Account.Load().Name, c.Tracker.Load().Target(), p.Protocol, p.Library, p.Version,
		c.Counts.BytesIn.Load(), c.Counts.BytesOut.Load(), c.Counts.Calls.Load())
}

// flags returns the letters of the flags field of CLIENT LIST, N if there is none. The caller holds
// the profile's lock.
func (c *Client) flags() string {
	letters, p := "", &c.Profile
	for _, f := range []struct {
		set    bool
		letter string
	}{
		{p.Subscriptions != [SubscriptionKinds]int{}, "P"}, {p.Monitoring, "O"}, {c.Counts.Queued.Load() != 0, "x"},
		{c.State() > Parked, "b"}, {strings.HasPrefix(c.Peer.Local, "/"), "U"}, {p.NoEvict, "e"}, {p.NoTouch, "T"},
	} {
		if f.set {
			letters += f.letter
		}
	}
	return cmp.Or(letters+c.Tracker.Load().Flags(), "N")
}
