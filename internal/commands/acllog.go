package commands

import (
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// ACL LOG: calls and passwords that were refused, of late.

// aclLog keeps them, the newest first. Those that are alike count as one.
type aclLog struct {
	denied [acl.DeniedChannel + 1]atomic.Int64 // that there have ever been, for INFO

	mu      sync.Mutex
	most    int
	made    int64 // entries that there have ever been
	entries []*deniedCall
}

type deniedCall struct {
	id, count    int64
	why          acl.Verdict
	multi        bool // in a transaction
	object, user string
	first, at    int64 // instants of the first and of the latest
	client       string
}

// The bounds of the log, as of an entry: Redis's names and keys may be of any length.
const (
	defaultACLLog = 128
	maxACLLog     = 100_000
	loggedBytes   = 1024 // of a name or a key
	loggedLine    = 4096 // of what CLIENT LIST says: a client's name may be long
	alike         = 10   // entries that a new one may be like, as in Redis
	alikeFor      = 60e9 // nanoseconds
)

// add notes a refusal.
func (l *aclLog) add(now int64, s *client.Client, row *command.Command, e deniedCall) {
	l.denied[e.why].Add(1)
	e.count, e.at = 1, now
	e.first = e.at
	e.client = command.Cut([]byte(strings.TrimSuffix(s.Line(e.at, &row.Name, nil), "\n")), loggedLine)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, known := range l.entries[:min(len(l.entries), alike)] {
		if known.isLike(&e) {
			known.count, known.at, known.client = known.count+1, e.at, e.client
			copy(l.entries[1:i+1], l.entries[:i])
			l.entries[0] = known
			return
		}
	}
	if l.most == 0 {
		return
	}
	if len(l.entries) < l.most {
		l.entries = append(l.entries, nil)
	}
	copy(l.entries[1:], l.entries)
	l.entries[0] = &e
	e.id = l.made
	l.made++
}

func (e *deniedCall) isLike(other *deniedCall) bool {
	return e.why == other.why && e.multi == other.multi && other.at-e.at <= alikeFor && e.object == other.object && e.user == other.user
}

// keep says how many it keeps from now on.
func (l *aclLog) keep(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	if len(l.entries) > most {
		l.entries = append([]*deniedCall(nil), l.entries[:most]...)
	}
}

// latest are so many entries, the newest first: copies.
func (l *aclLog) latest(count int64) []deniedCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]deniedCall, min(count, int64(len(l.entries))))
	for i := range list {
		list[i] = *l.entries[i]
	}
	return list
}

func (l *aclLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

func (e *deniedCall) write(c *command.Call) {
	context := "toplevel"
	if e.multi {
		context = "multi"
	}
	c.Out.Map(10)
	c.Out.BulkString("count")
	c.Out.Int(e.count)
	for _, f := range [][2]string{{"reason", reasons[e.why]}, {"context", context}, {"object", e.object}, {"username", e.user}} {
		c.Out.BulkString(f[0])
		c.Out.BulkString(f[1])
	}
	c.Out.BulkString("age-seconds")
	c.Out.Double(float64((c.View.Now()-e.at)/1e6) / 1000)
	c.Out.BulkString("client-info")
	c.Out.BulkString(e.client)
	for _, f := range []struct {
		name  string
		value int64
	}{{"entry-id", e.id}, {"timestamp-created", c.Unix(e.first) / 1e6}, {"timestamp-last-updated", c.Unix(e.at) / 1e6}} {
		c.Out.BulkString(f.name)
		c.Out.Int(f.value)
	}
}

// reasons are Redis's words.
var reasons = [...]string{acl.DeniedCommand: "command", acl.DeniedKey: "key", acl.DeniedPassword: "auth", acl.DeniedChannel: "channel"}

// logDenied notes a call that was refused, with what of it was: the command, or a key or channel.
func (as *accounts) logDenied(s *client.Client, row *command.Command, why acl.Verdict, object []byte, user string, multi bool) {
	as.log.add(as.Clock.Now(), s, row, deniedCall{why: why, multi: multi, object: command.Cut(object, loggedBytes), user: command.Cut([]byte(user), loggedBytes)})
}
