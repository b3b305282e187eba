package simulation

import (
	"bytes"
	"maps"
	"slices"

	"cellserver/internal/store/remote/combine"
)

// node is a server of the backend.
type node struct {
	id           combine.Primary
	up           bool
	deposed      bool // another server has taken over, which this one does not know: its writes are lost
	readOnly     bool // it knows that another server has taken over
	offset       int64
	stalledUntil int64
	requests     int // answered requests
	records      map[string]*record
	journal      []write // the last writes, which a replica may not have
	turns        map[string]turn
}

// slot is a part of the keys.
type slot struct {
	owner  *node
	target *node // where it moves; nil if it does not move
}

// record is a key's value and expiry.
type record struct {
	value   []byte
	expires int64 // by the node's clock
	version *version
}

// write is a change that can be taken back.
type write struct {
	at     int64
	key    string
	before *record
	after  *version
}

type turn struct {
	holder      uint64
	span, until int64
}

// replication is how long a replica may lag behind.
const replication = 20 * ms

func (w *world) addNode() *node {
	n := &node{id: combine.Primary(len(w.nodes)), up: true, records: map[string]*record{}, turns: map[string]turn{}}
	n.offset = 1e18 + w.below(100*ms)
	w.nodes = append(w.nodes, n)
	return n
}

func (w *world) clockOf(n *node) int64 { return w.now + n.offset }

// get returns a key's record, or nil if the key does not exist.
func (w *world) get(n *node, key string) *record {
	r := n.records[key]
	if r != nil && r.expires <= w.clockOf(n) {
		delete(n.records, key)
		if !n.deposed {
			w.oracle.expired(key, r.version)
		}
		return nil
	}
	return r
}

// execute answers a request.
func (w *world) execute(p *process, n *node, r *combine.Request) {
	n.requests++
	r.Reply = combine.Reply{}
	if r.Kind == combine.TurnOnly {
		w.executeTurn(n, r)
		r.Reply.Status = combine.Done
		return
	}
	keys := keysOf(r)
	if !w.serves(p, n, keys, r) {
		return
	}
	if w.chance(w.plan.Late) && !w.calm || n.readOnly {
		r.Reply.Status = combine.Later
		return
	}
	if r.Turn.Op == combine.GiveTurn {
		defer w.executeTurn(n, r)
	} else {
		w.executeTurn(n, r)
	}
	if w.chance(w.plan.Refuse) && !w.calm && r.Kind != combine.Read {
		r.Reply.Status, r.Reply.Error = combine.Refused, "OOM"
		return
	}
	r.Reply.Status = combine.Done
	switch r.Kind {
	case combine.Read:
		w.readParts(n, r)
	case combine.Write:
		w.executeWrite(n, r)
	case combine.Add:
		w.executeAdd(n, r)
	case combine.Command:
		w.executeCommand(n, r)
	}
}

func keysOf(r *combine.Request) (keys []string) {
	if r.Kind == combine.Command {
		return []string{string(r.Command[1])}
	}
	for i := range r.Parts {
		keys = append(keys, r.Parts[i].Key)
	}
	return keys
}

// serves reports whether a server answers requests on keys, as servers of a cluster do; otherwise
// it sets the reply.
func (w *world) serves(p *process, n *node, keys []string, r *combine.Request) bool {
	number := slotOf(keys[0])
	s := &w.slots[number]
	missing := 0
	for _, key := range keys {
		if w.get(n, key) == nil {
			missing++
		}
	}
	if looks := r.Kind == combine.Add && r.Turn.Op == combine.LookTurn; looks && s.target != nil && missing == 0 {
		missing, keys = 1, append(keys, "") // the turn key is another key, and usually not there
	}
	switch {
	case n.deposed:
		return true // this server does not know that it is deposed
	case n == s.owner && (s.target == nil || missing == 0):
		return true
	case n == s.owner && missing == len(keys):
		r.Reply = combine.Reply{Status: combine.Redirected, Ask: true, Asked: s.target.id}
	case n == s.owner:
		r.Reply.Status = combine.Later // TRYAGAIN
	case n == s.target && r.Asking:
		if missing == 0 || len(keys) == 1 {
			return true
		}
		r.Reply.Status = combine.Later
	default:
		r.Reply.Status = combine.Redirected
		p.table[number] = s.owner.id
	}
	return false
}

func (w *world) executeTurn(n *node, r *combine.Request) {
	if r.Turn.Op == combine.NoTurn {
		return
	}
	now := w.clockOf(n)
	t, held := n.turns[r.Turn.Key]
	held = held && t.until > now
	if held {
		r.Reply.Holder, r.Reply.Span = t.holder, t.span
	}
	switch r.Turn.Op {
	case combine.TakeTurn:
		if !held {
			n.turns[r.Turn.Key] = turn{holder: r.Turn.Holder, span: r.Turn.Span, until: now + r.Turn.Span}
		}
	case combine.GiveTurn:
		if held && t.holder == r.Turn.Holder {
			delete(n.turns, r.Turn.Key)
		}
	}
}

func (w *world) readParts(n *node, r *combine.Request) {
	for i := range r.Parts {
		part := &r.Parts[i]
		part.Value = combine.Value{Expires: combine.Never}
		if record := w.get(n, part.Key); record != nil {
			part.Value.Bytes = record.value
			if part.Expiry {
				part.Value.Expires = record.expires
			}
		}
	}
}

func (w *world) executeWrite(n *node, r *combine.Request) {
	w.readParts(n, r)
	for i := range r.Parts {
		part := &r.Parts[i]
		if !bytes.Equal(part.Known, part.Value.Bytes) || (part.Known == nil) != (part.Value.Bytes == nil) {
			r.Reply.Status = combine.Conflict
			return
		}
	}
	for i := range r.Parts {
		if part := &r.Parts[i]; part.Op == combine.Set {
			w.set(n, part.Key, part.Bytes, part.Expires)
		}
	}
}

// executeAdd makes the steps of a request, unless it leaves them to the process as the plan says.
func (w *world) executeAdd(n *node, r *combine.Request) {
	w.readParts(n, r)
	if r.Turn.Op == combine.LookTurn && r.Reply.Holder != 0 {
		r.Reply.Status = combine.Held
		return
	}
	if w.chance(w.plan.Leave) {
		r.Reply.Status = combine.Conflict
		return
	}
	key, v := r.Parts[0].Key, r.Parts[0].Value
	for _, a := range r.Adds {
		v = a.Apply(r.Now, v)
	}
	if !bytes.Equal(v.Bytes, r.Parts[0].Value.Bytes) {
		w.set(n, key, v.Bytes, v.Expires)
	}
}

// set writes a value that a step has made.
func (w *world) set(n *node, key string, value []byte, expires int64) {
	before := w.get(n, key)
	if expires == combine.KeepExpiry {
		expires = combine.Never
		if before != nil {
			expires = before.expires
		}
	}
	after := w.oracle.lookup(value)
	n.records[key] = &record{value: value, expires: expires, version: after}
	var old *version
	if before != nil {
		old = before.version
	}
	w.oracle.committed(n, key, old, after)
	n.journal = append(n.journal, write{at: w.now, key: key, before: before, after: after})
	if len(n.journal) > 256 && n.journal[128].at < w.now-replication {
		n.journal = slices.Delete(n.journal, 0, 128)
	}
}

// executeCommand answers the model's two commands: GET, and APPEND, which adds a version as a step
// does.
func (w *world) executeCommand(n *node, r *combine.Request) {
	key := string(r.Command[1])
	present := w.get(n, key)
	if string(r.Command[0]) == "GET" {
		var v *version
		if present != nil {
			v = present.version
		}
		r.Reply.Raw = v
		return
	}
	var parent *version
	if present != nil {
		parent = present.version
	}
	v := w.oracle.newVersion(parent, w.oracle.steps[stepNumber(r.Command[2])], key, 0)
	w.set(n, key, v.bytes, combine.KeepExpiry)
	r.Reply.Raw = v
}

// takeOver makes a replica the owner of a server's slots. The replica has all but the last writes.
func (w *world) takeOver(old *node) *node {
	replica := w.addNode()
	replica.records = maps.Clone(old.records)
	lag := w.below(replication)
	for i := len(old.journal) - 1; i >= 0 && old.journal[i].at > w.now-lag; i-- {
		change := &old.journal[i]
		if change.before == nil {
			delete(replica.records, change.key)
		} else {
			replica.records[change.key] = change.before
		}
		w.oracle.forgotten(change.key, change.before, change.after)
	}
	for i := range w.slots {
		s := &w.slots[i]
		if s.owner == old {
			s.owner = replica
		}
		if s.target == old {
			s.target = replica
		}
	}
	return replica
}
