package simulation

import (
	"slices"
	"strings"
)

func (w *world) scheduleFaults() {
	p := &w.plan
	w.every(p.CutIdle, func() {
		w.fault("idle connections cut")
		broken := w.processes[w.random.IntN(len(w.processes))]
		for _, c := range broken.conns {
			c.broken = c.open && c.current == nil
		}
	})
	w.every(p.Stall, func() {
		w.fault("server stalls")
		n := w.anyOwner()
		n.stalledUntil = w.now + w.below(1500*ms)
	})
	w.every(p.Crash, func() { w.crash(w.anyOwner()) })
	w.every(p.Split, func() { w.split(w.anyOwner()) })
	w.every(p.Move, w.move)
	w.every(p.Sleep, w.sleep)
	w.every(p.Jump, func() {
		w.fault("clock jumps")
		w.anyOwner().offset += w.below(2*p.JumpSize) - p.JumpSize
	})
	if p.SetAt > 0 {
		w.after(p.SetAt, func() {
			for _, n := range w.nodes {
				n.offset += p.JumpSize
			}
		})
	}
	w.every(p.Blackout, func() {
		w.fault("messages are lost")
		w.processes[w.random.IntN(len(w.processes))].dark[w.anyOwner()] = w.now + w.below(1500*ms)
	})
}

func (w *world) anyOwner() *node { return w.slots[w.random.IntN(len(w.slots))].owner }

// crash kills a server. Its replica takes over after a while.
func (w *world) crash(n *node) {
	if !n.up {
		return
	}
	w.fault("server dies")
	n.up = false
	w.after(w.below(500*ms), func() { w.takeOver(n) })
}

// split makes a replica take over although the server is alive and reachable.
func (w *world) split(n *node) {
	if !n.up || n.deposed {
		return
	}
	w.fault("server is deposed and does not know it")
	w.takeOver(n)
	n.deposed = true
	w.after(w.below(300*ms), func() { n.deposed, n.readOnly = false, true })
}

// move moves a slot to another server, key by key.
func (w *world) move() {
	s := &w.slots[w.random.IntN(len(w.slots))]
	target := w.anyOwner()
	if s.target != nil || target == s.owner || !target.up {
		return
	}
	w.fault("slot moves")
	s.target = target
	w.moveKey(s)
}

func (w *world) moveKey(s *slot) {
	from, to := s.owner, s.target
	if to == nil {
		return
	}
	if !from.up || !to.up {
		w.after(5*ms, func() { w.moveKey(s) })
		return
	}
	keys := w.keysIn(s, from)
	if len(keys) == 0 {
		s.owner, s.target = to, nil
		return
	}
	key := keys[0]
	moved := *from.records[key]
	delete(from.records, key)
	from.journal = slices.DeleteFunc(from.journal, func(c write) bool { return c.key == key })
	if moved.expires < 1<<62 {
		moved.expires += to.offset - from.offset
	}
	to.records[key] = &moved
	w.after(w.below(2*ms), func() { w.moveKey(s) })
}

// keysIn returns the keys of a slot that a server holds, sorted.
func (w *world) keysIn(s *slot, n *node) (keys []string) {
	for key := range n.records {
		if &w.slots[slotOf(key)] == s && w.get(n, key) != nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}

// heal ends all faults.
func (w *world) heal() {
	w.calm = true
	w.calmAt = w.now + w.plan.Grace
	for _, n := range w.nodes {
		n.stalledUntil = 0
	}
	for _, p := range w.processes {
		clear(p.dark)
	}
}
