package prometheus

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const monitoring = "../../docs/monitoring.md"

// thresholds are the numbers with which alerts compare. docs/monitoring.md must say the same numbers.
var thresholds = []struct{ alert, expr, page string }{
	{"CellserverDiskFails", "cellserver_journal_unsynced_seconds > 10 ", "`journal_synced_ms_ago` is above 10000 "},
	{"CellserverPoliciesFail", "cellserver_policies_failing == 1", "`policies_failing` is 1 "},
	{"CellserverStoreDown", "cellserver_store_failing == 1", "`store_failing` is 1 "},
	{"CellserverMemoryNearBound", "cellserver_memory_used_bytes > 0.9 * cellserver_memory_max_bytes",
		"`used_memory` is above 90 % of `maxmemory`"},
	{"CellserverConnectionsNearBound", "cellserver_connections > 0.8 * cellserver_connections_max",
		"`connected_clients` is above 80 % of `maxclients`"},
}

// wrongThresholds returns the alerts whose expression or whose line on the page has another number.
func wrongThresholds(list []rule, page string) (wrong []string) {
	for _, th := range thresholds {
		found := false
		for _, r := range list {
			expr := strings.Join(strings.Fields(r.Expr), " ") + " "
			found = found || r.Alert == th.alert && strings.Contains(expr, th.expr)
		}
		if !found || !strings.Contains(page, th.page) {
			wrong = append(wrong, th.alert)
		}
	}
	return wrong
}

// The alerts fire at what docs/monitoring.md tells an operator to alarm on.
func TestThresholdsAreThoseOfThePage(t *testing.T) {
	text, err := os.ReadFile(monitoring)
	require.NoError(t, err)
	page, list := string(text), rules(t)
	assert.Empty(t, wrongThresholds(list, page))
	for _, plant := range [][2]string{
		{"above 10000 ", "above 20000 "}, {"above 90 %", "above 95 %"}, {"above 80 %", "above 85 %"},
	} {
		require.Contains(t, page, plant[0])
		assert.Len(t, wrongThresholds(list, strings.ReplaceAll(page, plant[0], plant[1])), 1, plant)
	}
	for i := range list {
		list[i].Expr = strings.ReplaceAll(list[i].Expr, "> 0.9", "> 0.95")
	}
	assert.Equal(t, []string{"CellserverMemoryNearBound"}, wrongThresholds(list, page))
}
