package client

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

func (s *Client) Kind() string {
	s.Profile.Mu.Lock()
	defer s.Profile.Mu.Unlock()
	if s.Profile.Subscriptions != [SubscriptionKinds]int{} {
		return "PUBSUB"
	}
	return "NORMAL"
}

// clientLine describes a session as CLIENT LIST does, in Redis's fields. words are those of the
// call that asks, if it is the session's own: Redis has them in its buffers.
func (s *Client) Line(now int64, latest *string, words [][]byte) string {
	m := s.Memory(words)
	s.Profile.Mu.Lock()
	defer s.Profile.Mu.Unlock()
	name, events := "NULL", "r"
	if latest != nil {
		name = *latest
	}
	if m.Waiting+m.Following > 0 {
		events = "rw"
	}
	seconds := func(since int64) string { return strconv.FormatInt(max(now-since, 0)/1e9, 10) }
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%s idle=%s flags=%s db=%d sub=%d psub=%d ssub=%d multi=%d "+
		"qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=%d rbp=0 obl=%d oll=%d omem=%d tot-mem=%d events=%s "+
		"cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s\n",
		s.ID, s.Peer.Remote, s.Peer.Local, s.Peer.FD, s.Profile.Name, seconds(s.Opened), seconds(s.LastSeen.Load()),
		s.Flags(),
		s.Profile.Database, s.Profile.Subscriptions[ToChannel], s.Profile.Subscriptions[ToPattern],
		s.Profile.Subscriptions[ToShardChannel],
		s.Queued.Load()>>32-1,
		m.Unread, m.Free, m.Words, m.Queued, m.Room, m.Waiting, m.Pieces, m.Following, m.Total, events,
		name, s.Account.Load().Name, s.Tracker.Load().Target(), s.Profile.Protocol, s.Profile.Library, s.Profile.Version)
}

// clientFlags are the letters that CLIENT LIST has for a session, N if it has none. about is
// locked.
func (s *Client) Flags() string {
	letters := ""
	for _, f := range []struct {
		there  bool
		letter string
	}{
		{s.Profile.Subscriptions != [SubscriptionKinds]int{}, "P"}, {s.Profile.Monitoring, "O"}, {s.Queued.Load() != 0, "x"},
		{s.Blocked.Load(), "b"},
		{strings.HasPrefix(s.Peer.Local, "/"), "U"}, {s.Profile.NoEvict, "e"}, {s.Profile.NoTouch, "T"},
	} {
		if f.there {
			letters += f.letter
		}
	}
	return cmp.Or(letters+s.Tracker.Load().Flags(), "N")
}
