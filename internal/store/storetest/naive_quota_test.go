package storetest

import (
	"time"

	"cellserver/internal/limit"
	"cellserver/internal/window"
)

// readWallClock is called before each step. If the wall clock has been set, all calendar quotas get
// new expiries.
func (n *naive) readWallClock() {
	now, offset := n.clock.Now(), n.clock.Offset()
	if offset == n.wall.offset || n.has(quotasByElapsedTime) {
		return
	}
	if before := now + n.wall.offset; offset < n.wall.offset && !n.has(windowsComeBack) {
		n.wall.latest = max(n.wall.latest, before)
	}
	n.wall.offset = offset
	for i := range n.databases {
		for _, bucket := range n.databases[i] {
			for key, h := range bucket {
				if h.kind == limit.Quota {
					h.expires = n.quotaExpiry(h.quota, now)
					bucket[key] = h
				}
			}
		}
	}
}

// quotaExpiry returns the instant at which a calendar quota expires, or now if it has expired.
func (n *naive) quotaExpiry(q window.Calendar, now int64) int64 {
	if max(now+n.wall.offset, n.wall.latest) >= q.End {
		return now
	}
	return q.End - n.wall.offset
}

// misread returns the state on which a step on a calendar quota is made.
func (v *naiveView) misread(was keyState, rule limit.Rule, now int64) keyState {
	switch {
	case rule.Kind != limit.Quota:
	case v.has(mixesCycles):
		was.cycle = rule.Cycle
	case was.kind == limit.None && v.has(windowsFromNow):
		was = keyState{kind: limit.Quota, cycle: rule.Cycle, quota: window.Calendar{End: now + int64(24*time.Hour)}}
	case was.kind == limit.Quota && was.quota.End > now+int64(900*time.Hour) && v.has(looksForWindows):
		was = keyState{}
	}
	return was
}
