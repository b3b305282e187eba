package limiter

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Each kind that takes quantities has a command, and can be a member of CL.ALL, which reads its whole limit.
func TestKindsAreInCommands(t *testing.T) {
	l := &Family{maxLogLimit: 100}
	commands := map[string]bool{}
	for _, row := range append(l.windowRows(), l.throttle(), l.quota()) {
		commands[row.Name] = true
	}
	values := map[string]string{"key": "k", "limit": "20", "max_burst": "19", "count_per_period": "20", "period": "60",
		"unit": "1m", "quantity": "3"}
	for _, kind := range limit.OfPolicies {
		require.True(t, commands[kind.Command()], kind)
		f := formOf([]byte(entryName(kind)))
		require.NotNil(t, f, kind)
		var words [][]byte
		for _, argument := range strings.Fields(f.arguments) {
			require.Contains(t, values, argument, kind)
			words = append(words, []byte(values[argument]))
		}
		var r store.LimitRequest
		require.NoError(t, l.request(&r, entry{form: f}, words), kind)
		require.Equal(t, kind, r.Rule.Kind)
		require.Equal(t, int64(3), r.Quantity, kind)
		require.Equal(t, int64(20), r.Rule.Size(), kind)
		require.Equal(t, int64(time.Minute), r.Rule.Period(0), kind)
	}
}
