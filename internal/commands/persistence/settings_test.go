package persistence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/option"
)

// optionsOf returns settings with these values, and their options.
func optionsOf(t *testing.T, values ...option.Value) (*Settings, *option.List) {
	s, list := NewSettings(), new(option.List)
	require.NoError(t, list.Add(s.Options()...))
	for _, v := range values {
		require.NoError(t, list.Lookup(v.Name).Kind.Set(v.Value))
	}
	return &s, list
}

func TestInvalidValuesAreRefused(t *testing.T) {
	_, list := optionsOf(t)
	for _, c := range []struct{ name, value, says, redis string }{
		{"appendfsync", "always", "changes are written once a second, not with each command; use everysec", "use everysec"},
		{"appendfsync", "never", "it must be one of everysec, no", "one of everysec, no"},
		{"appendonly", "maybe", "it must be one of yes, no", "one of yes, no"},
		{"dbfilename", "../x", "dbfilename can't be a path, just a filename", "dbfilename can't be a path, just a filename"},
		{"dbfilename", "", "just a filename", "just a filename"},
		{"save", "900", "it must be pairs of seconds and changed keys", "Invalid save parameters"},
		{"save", "0 1", "it must be pairs", "Invalid save parameters"},
		{"save", "x 1", "it must be pairs", "Invalid save parameters"},
		{"save", "1 -1", "it must be pairs", "Invalid save parameters"},
		{"dir-fault", "ignore", "it must be one of refuse, start", "refuse, start"},
	} {
		require.ErrorContains(t, list.Lookup(c.name).Kind.Set(c.value), c.says)
		require.ErrorContains(t, list.Lookup(c.name).Kind.Check(c.value), c.redis)
	}
	require.NoError(t, list.Lookup("save").Kind.Set("3600 1  300 100"))
	require.Equal(t, "3600 1 300 100", list.Show("save"))
}

// Settings that need a folder are refused without one, at the start and by CONFIG SET.
func TestSettingsThatNeedAFolder(t *testing.T) {
	for _, c := range []struct{ name, value, dir, says string }{
		{"appendonly", "yes", "", "appendonly yes: there is no folder for the journal; name one with --dir"},
		{"appendonly", "no", "", ""},
		{"appendonly", "yes", "/data", ""},
		{"appendonly", "no", "/data", "appendonly no: with --dir, changes are always written to the folder"},
		{"save", "900 1", "", "save: there is no folder for the file; name one with --dir"},
		{"save", "900 1", "/data", ""},
		{"save", "", "", ""},
	} {
		s, list := optionsOf(t, option.Value{Name: "dir", Value: c.dir}, option.Value{Name: c.name, Value: c.value})
		err := list.Apply(new(Family).Effects(s)...)
		if c.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.says)
		}
	}
	s, list := optionsOf(t)
	require.NoError(t, list.Apply(new(Family).Effects(s)...))
	require.ErrorContains(t, list.Set([]option.Value{{Name: "save", Value: "900 1"}}, false), "name one with --dir")
	require.Equal(t, "", list.Show("save"), "it stays as it was")
}

// appendonly shows whether there is a folder, and cannot be set to anything else.
func TestAppendOnlyFollowsFromDir(t *testing.T) {
	for dir, value := range map[string]string{"": "no", "/data": "yes"} {
		_, list := optionsOf(t, option.Value{Name: "dir", Value: dir})
		require.Equal(t, value, list.Show("appendonly"))
		require.NoError(t, list.Set([]option.Value{{Name: "appendonly", Value: value}}, false))
	}
	_, list := optionsOf(t)
	require.ErrorIs(t, list.Set([]option.Value{{Name: "appendonly", Value: "yes"}}, true), option.ErrImmutable)
	require.ErrorIs(t, list.Set([]option.Value{{Name: "dir", Value: "/data"}}, true), option.ErrImmutable)
}
