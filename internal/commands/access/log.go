package access

import (
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// ACL LOG: calls and passwords that were refused, of late.

// deniedLog keeps them, the newest first. Those that are alike count as one.
type deniedLog struct {
	Denied [acl.DeniedChannel + 1]atomic.Int64 // that there have ever been, for INFO

	mu       sync.Mutex
	capacity int
	nextID   int64 // entries that there have ever been
	Entries  []*deniedCall
}

type deniedCall struct {
	ID, Count    int64
	verdict      acl.Verdict
	multi        bool // in a transaction
	Object, User string
	First, At    int64 // instants of the first and of the latest
	Client       string
}

// The bounds of the log, as of an entry: Redis's names and keys may be of any length.
const (
	defaultLogEntries = 128
	MaxLogEntries     = 100_000
	MaxLoggedObject   = 1024 // of a name or a key
	MaxLoggedClient   = 4096 // of what CLIENT LIST says: a client's name may be long
	comparedEntries   = 10   // entries that a new one may be like, as in Redis
	mergeWindow       = 60e9 // nanoseconds
)

// add notes a refusal.
func (l *deniedLog) add(now int64, s *client.Client, row *command.Command, e deniedCall) {
	l.Denied[e.verdict].Add(1)
	e.Count, e.At = 1, now
	e.First = e.At
	e.Client = command.Prefix([]byte(strings.TrimSuffix(s.Line(e.At, &row.Name, nil), "\n")), MaxLoggedClient)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, known := range l.Entries[:min(len(l.Entries), comparedEntries)] {
		if known.isLike(&e) {
			known.Count, known.At, known.Client = known.Count+1, e.At, e.Client
			copy(l.Entries[1:i+1], l.Entries[:i])
			l.Entries[0] = known
			return
		}
	}
	if l.capacity == 0 {
		return
	}
	if len(l.Entries) < l.capacity {
		l.Entries = append(l.Entries, nil)
	}
	copy(l.Entries[1:], l.Entries)
	l.Entries[0] = &e
	e.ID = l.nextID
	l.nextID++
}

func (e *deniedCall) isLike(other *deniedCall) bool {
	return e.verdict == other.verdict && e.multi == other.multi && other.At-e.At <= mergeWindow &&
		e.Object == other.Object && e.User == other.User
}

// SetCapacity says how many it keeps from now on.
func (l *deniedLog) SetCapacity(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity = most
	if len(l.Entries) > most {
		l.Entries = append([]*deniedCall(nil), l.Entries[:most]...)
	}
}

// latest are so many entries, the newest first: copies.
func (l *deniedLog) latest(count int64) []deniedCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]deniedCall, min(count, int64(len(l.Entries))))
	for i := range list {
		list[i] = *l.Entries[i]
	}
	return list
}

func (l *deniedLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Entries = nil
}

func (e *deniedCall) write(c *command.Call) {
	context := "toplevel"
	if e.multi {
		context = "multi"
	}
	c.Out.Map(10)
	c.Out.BulkString("count")
	c.Out.Int(e.Count)
	for _, f := range [][2]string{{"reason", Reasons[e.verdict]}, {"context", context}, {"object", e.Object},
		{"username", e.User}} {
		c.Out.BulkString(f[0])
		c.Out.BulkString(f[1])
	}
	c.Out.BulkString("age-seconds")
	c.Out.Double(float64((c.View.Now()-e.At)/1e6) / 1000)
	c.Out.BulkString("client-info")
	c.Out.BulkString(e.Client)
	for _, f := range []struct {
		name  string
		value int64
	}{{"entry-id", e.ID}, {"timestamp-created", c.Unix(e.First) / 1e6}, {"timestamp-last-updated", c.Unix(e.At) / 1e6}} {
		c.Out.BulkString(f.name)
		c.Out.Int(f.value)
	}
}

// Reasons are Redis's words.
var Reasons = [...]string{acl.DeniedCommand: "command", acl.DeniedKey: "key", acl.DeniedPassword: "auth",
	acl.DeniedChannel: "channel"}

// LogDenied notes a call that was refused, with what of it was: the command, or a key or channel.
func (as *Accounts) LogDenied(s *client.Client, row *command.Command, why acl.Verdict, object []byte, user string,
	multi bool) {
	as.DeniedLog.add(as.Clock.Now(), s, row,
		deniedCall{verdict: why, multi: multi, Object: command.Prefix(object, MaxLoggedObject),
			User: command.Prefix([]byte(user), MaxLoggedObject)})
}
