package access

import (
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

func (as *Accounts) log() *command.Command {
	return &command.Command{
		Name: "acl|log", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "O(N) in the number of entries", Flags: adminFlags, Cost: command.Unbounded,
		Summary: "Shows recently denied commands and failed logins, 10 entries by default; or clears them.",
		AnyMore: true, Args: []command.Arg{command.Word("[count | RESET]").Optional()},
		Reply: "OK for RESET; else for each entry count, reason, context, object, username, age-seconds, client-info, " +
			"entry-id, timestamp-created and timestamp-last-updated in Unix milliseconds.",
		Run: func(c *command.Call) error {
			count, log := int64(10), &as.DeniedLog
			switch word := c.Word(); {
			case len(c.Words) > 3:
				return errArguments(c)
			case word != nil && command.FoldEqual(word, "RESET"):
				log.reset()
				c.Out.Status("OK")
				return nil
			case word != nil:
				var ok bool
				if count, ok = resp.ParseInt(word); !ok {
					return command.ErrNotAnInteger
				}
			}
			entries := log.latest(max(count, 0))
			c.Out.Array(len(entries))
			for i := range entries {
				entries[i].write(c)
				c.Out.Break()
			}
			return nil
		},
	}
}

// deniedLog is the log of ACL LOG: denied calls and failed logins, the newest first. Similar entries are
// merged.
type deniedLog struct {
	denied [acl.DeniedCertificate + 1]atomic.Int64 // numbers of denied calls since the start, by verdict, for INFO

	mu       sync.Mutex
	capacity int
	nextID   int64
	Entries  []*deniedCall
}

// deniedCall is an entry of the log.
type deniedCall struct {
	ID, Count    int64
	verdict      acl.Verdict
	multi        bool   // in a transaction
	Object, User string // what was denied, and to which user
	First, At    int64  // instants of the first and the latest of merged entries
	Client       string // a line of CLIENT LIST
}

// The bounds of the log. An entry is bounded too, because names and keys may be long.
const (
	defaultLogEntries = 128
	maxLogEntries     = 100_000
	MaxLoggedObject   = 1024 // bytes of a name or a key
	MaxLoggedClient   = 4096 // bytes of a line of CLIENT LIST
	comparedEntries   = 10   // a new entry may be merged with one of the newest, as in Redis
	mergeWindow       = 60e9 // nanoseconds between entries that are merged
)

// add adds an entry, or merges it with a similar one.
func (l *deniedLog) add(now int64, s *client.Client, row *command.Command, e deniedCall) {
	l.denied[e.verdict].Add(1)
	e.Count, e.At = 1, now
	e.First = e.At
	e.Client = command.Prefix([]byte(strings.TrimSuffix(s.Line(e.At, &row.Name, nil), "\n")), MaxLoggedClient)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, known := range l.Entries[:min(len(l.Entries), comparedEntries)] {
		if known.isSimilar(&e) {
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

func (e *deniedCall) isSimilar(other *deniedCall) bool {
	return e.verdict == other.verdict && e.multi == other.multi && other.At-e.At <= mergeWindow &&
		e.Object == other.Object && e.User == other.User
}

// setCapacity sets how many entries the log keeps, and removes the oldest beyond that.
func (l *deniedLog) setCapacity(capacity int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity = capacity
	if len(l.Entries) > capacity {
		l.Entries = append([]*deniedCall(nil), l.Entries[:capacity]...)
	}
}

// latest returns copies of up to count entries, the newest first.
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
	c.Out.Field("count").Int(e.Count)
	for _, f := range [][2]string{{"reason", reasons[e.verdict]}, {"context", context}, {"object", e.Object},
		{"username", e.User}} {
		c.Out.BulkString(f[0])
		c.Out.BulkString(f[1])
	}
	c.Out.Field("age-seconds").Double(float64((c.Now()-e.At)/1e6) / 1000)
	c.Out.Field("client-info").BulkString(e.Client)
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"entry-id", e.ID},
		{"timestamp-created", c.Unix(e.First) / 1e6},
		{"timestamp-last-updated", c.Unix(e.At) / 1e6},
	} {
		c.Out.BulkString(f.name)
		c.Out.Int(f.value)
	}
}

// reasons are Redis's names of the verdicts.
var reasons = [...]string{acl.DeniedCommand: "command", acl.DeniedKey: "key", acl.DeniedPassword: "auth",
	acl.DeniedChannel: "channel", acl.DeniedCertificate: "tls-cert"}

// LogDenied logs a denied call or a failed login. object is the command, key or channel that was denied.
func (as *Accounts) LogDenied(s *client.Client, row *command.Command, why acl.Verdict, object []byte, user string,
	multi bool) {
	as.DeniedLog.add(as.Clock.Now(), s, row,
		deniedCall{verdict: why, multi: multi, Object: command.Prefix(object, MaxLoggedObject),
			User: command.Prefix([]byte(user), MaxLoggedObject)})
}
