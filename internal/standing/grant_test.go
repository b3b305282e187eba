package standing

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A grant replaces a grant with the same label, ends by itself or with a quantity of 0, and survives a pardon.
func TestGrants(t *testing.T) {
	grant := func(label string, quantity, until int64) Grant { return Grant{label, quantity, Term{until, "why"}} }
	s := State{Ban: Term{Until: 100}}
	for _, g := range []Grant{grant("b", 2, 20), grant("a", 1, 10), grant("c", 3, 30), grant("b", 5, 25)} {
		var ok bool
		s, ok = s.Grant(0, g)
		require.True(t, ok)
	}
	require.Equal(t, []Grant{grant("a", 1, 10), grant("b", 5, 25), grant("c", 3, 30)}, s.Grants.List())
	require.Equal(t, int64(100), s.Expires())
	require.Equal(t, s.Grants, s.Pardon(0).Grants)
	pardoned := s.Pardon(0)
	require.Equal(t, int64(30), pardoned.Expires())
	require.Len(t, s.At(9).Grants.List(), 3)
	require.Equal(t, []Grant{grant("b", 5, 25), grant("c", 3, 30)}, s.At(10).Grants.List())
	next, ok := s.Grant(0, grant("b", 0, 40))
	require.True(t, ok)
	require.Equal(t, []Grant{grant("a", 1, 10), grant("c", 3, 30)}, next.Grants.List())
	next, ok = State{}.Grant(5, grant("a", 1, 5))
	require.True(t, ok)
	require.Equal(t, State{}, next, "it has ended")
	require.Equal(t, State{}, s.At(100))
}

// Grants that have ended make room for others.
func TestMostGrants(t *testing.T) {
	s := State{}
	for i := range MaxGrants {
		s, _ = s.Grant(0, Grant{"l" + strconv.Itoa(i), 1, Term{10 + int64(i), ""}})
	}
	more := Grant{"more", 1, Term{99, ""}}
	next, ok := s.Grant(9, more)
	require.False(t, ok)
	require.Equal(t, s, next)
	next, ok = s.Grant(10, more)
	require.True(t, ok)
	require.Len(t, next.Grants.List(), MaxGrants)
	_, ok = s.Grant(9, Grant{"l3", 2, Term{99, ""}})
	require.True(t, ok)
}
