package commands

import (
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// blockedClients are the sessions that wait, for a time or for another client: CLIENT PAUSE, WAIT,
// DEBUG SLEEP. They are parked: nothing more is read of them, their event loops serve the others,
// and no goroutine waits beside them. There are never more of them than clients.
type blockedClients struct {
	mu       sync.Mutex
	clock    store.Clock
	sessions map[*client.Client]blocking
	timer    *time.Timer
	next     int64          // instant that the timer is for, Never for none
	over     bool           // nobody waits any more: the server stops
	pause    pause          // that all of them, or all that write, wait for
	hooks    *atomic.Uint32 // the instance's: whether there is a pause
}

// blocking is what one session waits for.
type blocking struct {
	until int64  // instant, nanoseconds; Never if only another client can end it
	reply string // that ends it, in RESP
	held  bool   // by a pause: then the call is made when it ends, and there is no reply yet
	ended func() // is told, if there is one, when it is over
}

// shortestWait is the least time between two looks at who has waited long enough: to look takes a
// time that grows with their number.
const shortestWait = time.Millisecond

// wait parks the session.
func (s *Session) wait(w blocking) {
	ws := &s.instance.waits
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.parked = true
	ws.add(s.Client, w)
}

// add has a client wait. It needs the lock.
func (ws *blockedClients) add(s *client.Client, w blocking) {
	s.Parked.Store(true)
	s.Blocked.Store(true)
	ws.sessions[s] = w
	if ws.over {
		ws.release(s, w.reply)
	} else {
		ws.wakeAt(w.until)
	}
}

// release ends a session's wait. It needs the lock.
func (ws *blockedClients) release(s *client.Client, reply string) {
	if ended := ws.sessions[s].ended; ended != nil {
		ended()
	}
	delete(ws.sessions, s)
	s.Blocked.Store(false)
	if reply == "" {
		s.Deliver(client.Delivery{})
	} else {
		s.Deliver(client.Delivery{Reply: [][]byte{[]byte(reply)}})
	}
}

// IsBlocked says that the session waits for something that may never come, so that nobody need keep it
// once its client has gone. (A pause does end, and the client may only have nothing more to say.)
func (s *Session) IsBlocked() bool { return s.parked && !s.postponed && s.Blocked.Load() }

// forget is for a session whose connection has gone.
func (ws *blockedClients) forget(s *client.Client) {
	if s.Blocked.Load() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.sessions, s)
	}
}

// wakeAt sees to it that somebody looks at an instant. It needs the lock.
func (ws *blockedClients) wakeAt(instant int64) {
	if instant >= ws.next {
		return
	}
	ws.next = instant
	in := max(time.Duration(instant-ws.clock.Now()), shortestWait)
	if ws.timer == nil {
		ws.timer = time.AfterFunc(in, ws.tick)
	} else {
		ws.timer.Reset(in)
	}
}

// tick ends what has lasted long enough.
func (ws *blockedClients) tick() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := ws.clock.Now()
	ws.next = store.Never
	if ws.pause.until != 0 && now >= ws.pause.until {
		ws.unpause()
	}
	next := store.Never
	if ws.pause.until != 0 {
		next = ws.pause.until
	}
	for s, w := range ws.sessions {
		if !w.held && now >= w.until {
			ws.release(s, w.reply)
		} else {
			next = min(next, w.until)
		}
	}
	ws.wakeAt(next)
}

// unblock ends the wait of a session that is not held by a pause. It is false if there is none.
func (ws *blockedClients) unblock(s *client.Client, reply string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, waits := ws.sessions[s]
	if !waits || w.held {
		return false
	}
	if reply == "" {
		reply = w.reply
	}
	ws.release(s, reply)
	return true
}

func (ws *blockedClients) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.sessions)
}

// UnblockAll ends a pause, and every wait as if its time were over: the server is to stop.
func (in *Instance) UnblockAll() {
	ws := &in.waits
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.unpause()
	ws.over = true
	for s, w := range ws.sessions {
		ws.release(s, w.reply)
	}
}

// msAfter is an instant so many milliseconds after another, Never if that is beyond what can be
// said.
func msAfter(now, ms int64) int64 {
	if ms > (store.Never-now)/int64(time.Millisecond) {
		return store.Never
	}
	return now + ms*int64(time.Millisecond)
}

var waitFor = command.Command{
	Name: "wait", Group: "generic", Category: "connection", Since: "3.0.0", Complexity: "O(1)",
	Flags: command.NoScript, Tips: []string{command.AllShards, "response_policy:agg_min"},
	Summary: "Waits for replicas. There are none, so a call that waits for one waits until the timeout, or for ever if that is 0.",
	Args:    []command.Arg{command.Int("numreplicas"), command.Int("timeout").By(parseTimeout)},
	Reply:   "0, the number of replicas that have received the writes before.",
	Run: func(c *command.Call) error {
		replicas, timeout := c.Int(), c.Int()
		awaitReplicas(c, replicas, timeout, ":0\r\n")
		return nil
	},
}

// awaitReplicas has the client wait for replicas, which there are not, and then gives it the reply.
func awaitReplicas(c *command.Call, replicas, timeout int64, reply string) {
	if replicas <= 0 || c.InTransaction || c.Session == nil {
		c.Out.Raw([]byte(reply))
		return
	}
	w := blocking{until: store.Never, reply: reply}
	if timeout > 0 {
		w.until = msAfter(c.View.Now(), timeout)
	}
	sessionOf(c).wait(w)
}

var waitAOF = command.Command{
	Name: "waitaof", Group: "generic", Category: "connection", Since: "7.2.0", Complexity: "O(1)",
	Flags: command.NoScript, Tips: []string{command.AllShards, "response_policy:agg_min"},
	Summary: "Waits for append-only files. There are none, neither here nor on replicas, so it waits as WAIT does.",
	Args: []command.Arg{
		command.Int("numlocal").By(parseNumLocal), command.Int("numreplicas").By(parseNumReplicas),
		command.Int("timeout").By(parseTimeout),
	},
	Reply: "Two numbers, both 0: the local files and the replicas that have received the writes before.",
	Run: func(c *command.Call) error {
		local, replicas, timeout := c.Int(), c.Int(), c.Int()
		if local > 0 {
			return command.Refusal("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.")
		}
		awaitReplicas(c, replicas, timeout, "*2\r\n:0\r\n:0\r\n")
		return nil
	},
}

func parseNumLocal(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n != 0 && n != 1:
		return 0, command.Refusal("ERR value is out of range, value must between 0 and 1")
	}
	return n, nil
}

func parseNumReplicas(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	if !ok || n < 0 {
		return 0, command.Refusal("ERR value is out of range, must be positive")
	}
	return n, nil
}
