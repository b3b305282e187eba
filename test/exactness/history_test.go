package exactness

import (
	"fmt"
	"slices"
	"time"
)

// history is what the clients of one limiter have asked and were told.
type history struct {
	limit *limit
	calls []call
	// wrong is the largest error of a server about the store's clock.
	wrong time.Duration
	lost  *failover // nil without a failover
}

// failover describes how a server that has not received the last changes becomes the primary.
type failover struct {
	kept   time.Duration // the new primary has every change that was answered before this instant
	killed time.Duration // the new primary answers no call before this instant
	ended  time.Duration // the old primary answers no call after this instant
}

// effect is what a call does to a limit: at some time between from and to, it takes between least
// and most tokens. It gives tokens back if these are below 0.
type effect struct {
	from, to    time.Duration
	least, most int64
}

// effectOf returns the effect of a call. A call with unknown outcome can take effect long after its
// reply, when what was sent reaches the store.
func effectOf(c *call) (e effect, ok bool) {
	switch {
	case c.outcome == unsure:
		return effect{c.sent, never, min(c.asked, 0), max(c.asked, 0)}, true
	case c.outcome != allowed || c.asked == 0:
		return effect{}, false
	}
	e = effect{c.sent, c.returned, c.taken, c.taken}
	if c.asked < c.taken {
		e.least-- // the call removed the key; its reply does not count the part of a token that had come back
	}
	return e, c.asked < 0 || c.taken > 0
}

// book has the effects of the calls of one limiter, and checks them and the replies against the limit.
type book struct {
	limit *limit
	wrong time.Duration
	// The effects that take tokens, and the effects that give some back, by their beginning and by their end.
	takes, takesByEnd []effect
	gives, givesByEnd []effect
}

// newBook returns a book of some calls. Calls that may be forgotten have an unknown outcome.
func (h *history) newBook(counts func(c *call) bool, mayBeForgotten func(c *call) bool) *book {
	b := &book{limit: h.limit, wrong: h.wrong}
	for i := range h.calls {
		c := &h.calls[i]
		e, ok := effectOf(c)
		if !ok || !counts(c) {
			continue
		}
		if mayBeForgotten(c) {
			e.least, e.most = min(e.least, 0), max(e.most, 0)
		}
		if c.asked > 0 {
			b.takes = append(b.takes, e)
		} else {
			b.gives = append(b.gives, e)
		}
	}
	byStart := func(x, y effect) int { return int(x.from - y.from) }
	byEnd := func(x, y effect) int { return int(x.to - y.to) }
	slices.SortFunc(b.takes, byStart)
	slices.SortFunc(b.gives, byStart)
	b.takesByEnd, b.givesByEnd = slices.Clone(b.takes), slices.Clone(b.gives)
	slices.SortFunc(b.takesByEnd, byEnd)
	slices.SortFunc(b.givesByEnd, byEnd)
	return b
}

// check compares a history with the promises of its limit: it admits nothing in excess, and no reply
// shows more or fewer tokens than there can have been. Before a failover every admitted call counts,
// and after it every call that was not forgotten.
func (h *history) check() error {
	all := func(*call) bool { return true }
	none := func(*call) bool { return false }
	after := h.newBook(all, none)
	before := after
	if h.lost != nil {
		after = h.newBook(all, h.mayBeForgotten)
		early := func(c *call) bool { return c.asked < 0 || h.isBefore(c) }
		if err := h.newBook(early, none).checkAdmitted(); err != nil {
			return fmt.Errorf("before the failover: %w", err)
		}
	}
	if err := after.checkAdmitted(); err != nil {
		return err
	}
	for i := range h.calls {
		b := after
		if h.isBefore(&h.calls[i]) {
			b = before
		}
		if err := b.checkReply(&h.calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// isBefore reports whether a call was answered before a failover.
func (h *history) isBefore(c *call) bool { return h.lost != nil && c.returned <= h.lost.killed }

// mayBeForgotten reports whether a failover may have forgotten a call.
func (h *history) mayBeForgotten(c *call) bool {
	return h.lost != nil && c.returned > h.lost.kept && c.sent < h.lost.ended
}
