package prometheus

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"cellserver/test/generated"
)

const runbooks = "../../docs/troubleshooting.md"

// rule is an alert of alerts.yaml.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) (list []rule) {
	t.Helper()
	text, err := os.ReadFile(folder + "alerts.yaml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

var alertTable = regexp.MustCompile(`(?s)(<!-- alerts: written by make rewrite -->\n).*?(<!-- end of alerts -->)`)

// TestAlertsHaveRunbooks: docs/troubleshooting.md has each alert with its threshold, which it takes from the rules, and
// a section, to which the alert's runbook_url leads.
func TestAlertsHaveRunbooks(t *testing.T) {
	text, err := os.ReadFile(runbooks)
	require.NoError(t, err)
	require.Regexp(t, alertTable, string(text))
	var out strings.Builder
	out.WriteString("| Alert | Severity | Fires when | For |\n|---|---|---|---|\n")
	for _, r := range rules(t) {
		anchor, expr := strings.ToLower(r.Alert), strings.Join(strings.Fields(r.Expr), " ")
		fmt.Fprintf(&out, "| [%s](#%s) | %s | `%s` | %s |\n", r.Alert, anchor, r.Labels["severity"], expr, r.For)
		assert.Equal(t, "docs/troubleshooting.md#"+anchor, r.Annotations["runbook_url"])
		assert.Regexp(t, `(?m)^### `+r.Alert+`\n\n\S`, string(text), "%s has no section", r.Alert)
	}
	want := alertTable.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(out.String(), "$", "$$")+"${2}")
	generated.Check(t, runbooks, want, *rewrite)
	assert.NotRegexp(t, `(?m)^### CellserverPlanted\n`, string(text))
}
