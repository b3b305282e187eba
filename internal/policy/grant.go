package policy

import (
	"slices"

	"cellserver/internal/standing"
)

// Grantable reports whether a subject may be granted more of the limit. A grant ends with the present window, so the
// windows of the limit must end.
func (l *Limit) Grantable() bool { return l.Kind.Ends() }

// Find returns the index of the limit with a label; -1 if the treatment has none.
func (t *Treatment) Find(label string) int {
	return slices.IndexFunc(t.Limits, func(l Limit) bool { return l.Label() == label })
}

// Granted returns the treatment of a subject with its grants added. It ignores grants of limits that the treatment does
// not have, and all grants of a subject that is unlimited or blocked.
func (t Treatment) Granted(now int64, s *standing.State) Treatment {
	if s == nil || s.Grants == "" {
		return t
	}
	limits := slices.Clone(t.Limits)
	for _, grant := range s.At(now).Grants.List() {
		if i := t.Find(grant.Label); i >= 0 && limits[i].Grantable() {
			limits[i].Window = limits[i].Window.Plus(grant.Quantity)
		}
	}
	t.Limits = limits
	return t
}
