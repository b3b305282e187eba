package commands

import (
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// CLIENT PAUSE: calls wait until it ends. They are read, and refused if they make no sense, but not
// made.

// The hooks are what a session has to look at before or after each of its calls, while there is
// any.
const (
	paused    uint32 = 1 << iota
	monitored        // somebody watches every call
	timed            // every call's time is taken, because even a quick one may be wanted for the slow log
	full             // more memory is used than maxmemory: see outOfMemory
	notifying        // what happens to keys is published: see notifier
)

// pause lasts until an instant; 0 if there is none.
type pause struct {
	until int64
	all   bool // every call waits, not only those that write
}

var clientPause = command.Command{
	Name: "client|pause", Group: "connection", Since: "2.9.50", Complexity: "O(1)",
	Flags:   command.Admin | command.Dangerous | aboutClients,
	Summary: "Delays the calls of all clients for some milliseconds: those that write, or all.",
	Args:    []command.Arg{command.Int("timeout").By(parseTimeout), command.Word("[WRITE | ALL]").Optional()},
	Reply:   "OK.",
	Run: func(c *command.Call) error {
		timeout, mode := c.Int(), c.Word()
		if mode != nil && !command.FoldEqual(mode, "WRITE") && !command.FoldEqual(mode, "ALL") {
			return command.Refusal("ERR CLIENT PAUSE mode must be WRITE or ALL")
		}
		instanceOf(c).waits.beginPause(pause{msAfter(c.View.Now(), timeout), mode == nil || command.FoldEqual(mode, "ALL")})
		if c.Session != nil {
			sessionOf(c).slowPath = true
		}
		c.Out.Status("OK")
		return nil
	},
}

var clientUnpause = command.Command{
	Name: "client|unpause", Group: "connection", Since: "6.2.0",
	Complexity: "O(N) in the number of clients that wait",
	Flags:      command.Admin | command.Dangerous | aboutClients, Summary: "Ends a CLIENT PAUSE.",
	Reply: "OK.",
	Run: func(c *command.Call) error {
		ws := &instanceOf(c).waits
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.unpause()
		c.Out.Status("OK")
		return nil
	},
}

// parseTimeout reads milliseconds, with Redis's words for what is none.
func parseTimeout(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.Refusal("ERR timeout is not an integer or out of range")
	case n < 0:
		return 0, command.Refusal("ERR timeout is negative")
	}
	return n, nil
}

// beginPause begins a pause, or makes the present one longer and stricter, never shorter or laxer.
func (ws *blockedClients) beginPause(p pause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.over {
		return
	}
	ws.pause.until = max(ws.pause.until, p.until)
	ws.pause.all = ws.pause.all || p.all
	ws.hooks.Or(paused)
	ws.wakeAt(ws.pause.until)
}

// unpause ends it, and has the calls that wait for that made. It needs the lock.
func (ws *blockedClients) unpause() {
	ws.pause = pause{}
	ws.hooks.And(^paused)
	for s, w := range ws.sessions {
		if w.held {
			ws.release(s, "")
		}
	}
}

// held parks the session before its next call if that has to wait for a pause to end.
func (s *Session) held() bool {
	in := s.instance
	if in.hooks.Load()&paused == 0 {
		return false
	}
	row := s.ahead.peek()
	if row == nil {
		return false // it is refused
	}
	writes := row.Flags&command.Write != 0 || row.Traits&command.Executes != 0 && s.queue.writes()
	ws := &in.waits
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.pause.until == 0 || !writes && !ws.pause.all:
		return false
	case ws.clock.Now() >= ws.pause.until:
		ws.unpause() // the timer is late
		return false
	}
	s.parked, s.postponed = true, true
	ws.add(s.Client, blocking{until: command.MaxInt, held: true})
	s.showLatest(row)
	return true
}

// writes says whether one of the calls may change a key.
func (q *queue) writes() bool {
	if q == nil {
		return false
	}
	for _, call := range q.calls {
		if call.row.Flags&command.Write != 0 {
			return true
		}
	}
	return false
}

// peek is the row of the call that is answered next, nil if it will be refused for its name or the
// number of its words.
func (a *ahead) peek() *command.Command {
	w := &a.calls[a.next]
	words := a.words[w.start:w.end]
	if row := w.row.Subcommand(words); row != nil && row.Grammar.Fits(len(words)) {
		return row
	}
	return nil
}
