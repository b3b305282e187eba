package commands

import (
	"container/list"
	"sync"
)

// Newcomers are the connections that have not logged in, where there is a password, and those whose TLS handshake is under
// way. Anybody may be one, so what is kept for all of them together is bounded, and the oldest is cut first: a client that
// means to log in does so at once, and is hardly ever the oldest.
type Newcomers struct {
	mu      sync.Mutex
	most    int64     // bytes
	bytes   int64     // of those that stay
	leaving int64     // of those that were cut and are still there
	all     list.List // of *Newcomer that stay, the oldest first
	cut     int64     // how many were
}

// Newcomer is one of them.
type Newcomer struct {
	among *Newcomers
	bytes int64
	idle  func() bool // it waits for its peer; nil for always
	end   func()
	at    *list.Element // nil once it was cut, or has left
	left  bool
}

// Enter counts a connection for which so many bytes are kept. end is called, from any goroutine, if it is to be cut; one that is
// not idle, because it waits for a processor and not for its peer, is cut after all others.
func (ns *Newcomers) Enter(bytes int, idle func() bool, end func()) *Newcomer {
	n := &Newcomer{among: ns, idle: idle, end: end}
	ns.mu.Lock()
	n.at = ns.all.PushBack(n)
	ns.mu.Unlock()
	n.grow(bytes)
	return n
}

// Grow counts bytes that are kept for it more, or less.
func (n *Newcomer) Grow(bytes int) { n.grow(bytes) }

func (n *Newcomer) grow(bytes int) {
	for _, oldest := range n.among.add(n, int64(bytes)) {
		oldest.end()
	}
}

// add counts, and says which newcomers are to be cut for it.
func (ns *Newcomers) add(n *Newcomer, bytes int64) (cut []*Newcomer) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	switch {
	case n.left:
		return nil
	case n.at == nil:
		ns.leaving += bytes
	default:
		ns.bytes += bytes
	}
	n.bytes += bytes
	return ns.fit()
}

// fit takes the oldest out until the others are within the bound. It needs the lock.
func (ns *Newcomers) fit() (cut []*Newcomer) {
	for ns.bytes > ns.most && ns.all.Len() > 0 {
		n := ns.oldest()
		ns.all.Remove(n.at)
		n.at = nil
		ns.bytes -= n.bytes
		ns.leaving += n.bytes
		ns.cut++
		cut = append(cut, n)
	}
	return cut
}

// oldest is the oldest that is idle, or else the oldest. It needs the lock, and that there are some.
func (ns *Newcomers) oldest() *Newcomer {
	for at := ns.all.Front(); at != nil; at = at.Next() {
		if n := at.Value.(*Newcomer); n.idle == nil || n.idle() {
			return n
		}
	}
	return ns.all.Front().Value.(*Newcomer)
}

// Leave ends the counting: it has logged in, or is gone.
func (n *Newcomer) Leave() {
	ns := n.among
	ns.mu.Lock()
	defer ns.mu.Unlock()
	switch {
	case n.left:
		return
	case n.at == nil:
		ns.leaving -= n.bytes
	default:
		ns.all.Remove(n.at)
		ns.bytes -= n.bytes
	}
	n.at, n.left = nil, true
}

// limit changes the bound.
func (ns *Newcomers) limit(most int64) {
	ns.mu.Lock()
	ns.most = most
	cut := ns.fit()
	ns.mu.Unlock()
	for _, oldest := range cut {
		oldest.end()
	}
}

// count is how many bytes are kept for all that are there, and how many were cut.
func (ns *Newcomers) count() (bytes, cut int64) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.bytes + ns.leaving, ns.cut
}

// Crowded says that many were cut who are not gone yet: more should not be let in until they are.
func (ns *Newcomers) Crowded() bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.leaving > ns.most/8
}

// Newcomers are those of the instance: sessions are among them by themselves.
func (in *Instance) Newcomers() *Newcomers { return &in.newcomers }

// Keep counts bytes more that the transport keeps for the connection; false if it is to do without, for a newcomer.
func (s *Session) Keep(bytes int) bool {
	if s.newcomer != nil {
		return false
	}
	s.charge(bytes)
	return true
}

// enterNewcomers is for a session that has to log in; leaveNewcomers for one that has, or is over.
func (s *Session) enterNewcomers() {
	if s.newcomer == nil {
		s.newcomer = s.instance.newcomers.Enter(int(s.holds.Load()), nil, s.peer.Cut)
	}
}

func (s *Session) leaveNewcomers() {
	if s.newcomer != nil {
		s.newcomer.Leave()
		s.newcomer = nil
	}
}
