package command

import (
	"slices"
	"strings"

	"cellserver/internal/stats"
)

// Observe counts a call that was timed in the histogram and in LATENCY, by its duration in nanoseconds. It reports
// whether SLOWLOG keeps a call of this duration.
func (s *Server) Observe(row *Command, ns int64) (slow bool) {
	if s.Stats.TracksLatency() {
		s.Stats.Of(row.Number).Observe(ns)
	}
	if s.Stats.Latency.Threshold.Load() > 0 && row.Flags&Unlogged == 0 {
		s.Stats.Latency.Add(row.latencyEvent(), (s.Clock.Now()-ns+s.Clock.Offset())/1e9, ns)
	}
	return s.IsSlow(row, ns)
}

// IsSlow reports whether SLOWLOG keeps a call of this duration, in nanoseconds.
func (s *Server) IsSlow(row *Command, ns int64) bool {
	return row.Flags&Unlogged == 0 && s.Stats.SlowLog.IsSlow(ns/1000)
}

// latencyEvent returns the name of LATENCY's event for calls of a row.
func (row *Command) latencyEvent() string {
	if row.Flags&Fast != 0 {
		return "fast-command"
	}
	return "command"
}

// SlowCall returns the entry of a call for SLOWLOG, without its duration.
func (c *Call) SlowCall(row *Command, words [][]byte) stats.SlowCall {
	e := stats.SlowCall{
		Unix: c.Unix(c.Now()) / 1e9, Address: c.Client.Peer.Remote,
		Arguments: stats.Shorten(c.Server.Redact(row, words), stats.SlowArguments, stats.SlowArgumentBytes),
	}
	c.Client.Profile.Mu.Lock()
	defer c.Client.Profile.Mu.Unlock()
	e.Name = c.Client.Profile.Name
	return e
}

// Redact returns the words of a call with its secrets replaced.
func (s *Server) Redact(row *Command, words [][]byte) [][]byte {
	if row.Secrets == nil {
		return words
	}
	words = slices.Clone(words)
	row.Secrets(s.Table, words, func(word int) { words[word] = []byte("(redacted)") })
	return words
}

// CountError counts an error reply by its class, which is its first word, and as a failed call of its
// row; row is nil if no call was made. It returns the text of the reply.
func (s *Server) CountError(row *Command, err error) (text string) {
	text = ErrorText(err)
	s.Stats.Errors.Add(1)
	if row != nil {
		s.Stats.Of(row.Number).Failed.Add(1)
	}
	code, _, _ := strings.Cut(text, " ")
	s.Stats.Codes.Add(code)
	return text
}

// CountReads adds the keys that a call has read to the statistics.
func (c *Call) CountReads() {
	if c.Hits|c.Misses != 0 {
		c.Server.Stats.Hits.Add(c.Hits)
		c.Server.Stats.Misses.Add(c.Misses)
		c.Hits, c.Misses = 0, 0
	}
}

// EachCalled calls visit for the rows that were called, in the order of the table, each container before
// its subcommands.
func (s *Server) EachCalled(visit func(row *Command, calls *stats.Calls)) {
	var each func(row *Command)
	each = func(row *Command) {
		if calls := s.Stats.Of(row.Number); calls.Calls.Load() > 0 || calls.Rejected.Load() > 0 {
			visit(row, calls)
		}
		for _, sub := range row.Subs {
			each(sub)
		}
	}
	for _, row := range s.Table.Rows {
		each(row)
	}
}
