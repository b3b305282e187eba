package prometheus

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/generated"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the table of docs/metrics.md")

const page = "../../docs/metrics.md"

var table = regexp.MustCompile(`(?s)(<!-- metrics: written by make rewrite -->\n).*?(<!-- end of metrics -->)`)

// TestPageIsCurrent: docs/metrics.md has all metrics, as the servers describe them.
func TestPageIsCurrent(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Regexp(t, table, string(text))
	addresses, _ := servers(t)
	var scrapes []string
	for _, address := range addresses {
		_, body := fetch(t, "http://"+address+"/metrics")
		scrapes = append(scrapes, body)
	}
	want := table.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(rows(scrapes), "$", "$$")+"${2}")
	generated.Check(t, page, want, *rewrite)
}

// described is a metric as its HELP and TYPE lines describe it.
type described struct{ kind, help, labels string }

var series = regexp.MustCompile(`^(cellserver_\w+)\{(.*)\} `)

// rows returns the table of the metrics in several scrapes, without the metrics of Go and of the process.
func rows(scrapes []string) string {
	all := map[string]*described{}
	for _, scrape := range scrapes {
		for line := range strings.Lines(scrape) {
			words := strings.SplitN(strings.TrimSpace(line), " ", 4)
			switch {
			case words[0] == "#" && words[1] == "HELP" && strings.HasPrefix(words[2], "cellserver_") && all[words[2]] == nil:
				all[words[2]] = &described{help: words[3]}
			case words[0] == "#" && words[1] == "TYPE" && all[words[2]] != nil:
				all[words[2]].kind = words[3]
			default:
				addLabels(all, line)
			}
		}
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	var out strings.Builder
	out.WriteString("| Metric | Labels | Kind | |\n|---|---|---|---|\n")
	for _, name := range names {
		d := all[name]
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", name, d.labels, d.kind, strings.ReplaceAll(d.help, "|", `\|`))
	}
	return out.String()
}

var label = regexp.MustCompile(`(\w+)="`)

// addLabels notes the names of the labels of a series.
func addLabels(all map[string]*described, line string) {
	found := series.FindStringSubmatch(line)
	if found == nil {
		return
	}
	d := all[strings.TrimSuffix(found[1], "_bucket")]
	if d == nil || d.labels != "" {
		return
	}
	var names []string
	for _, l := range label.FindAllStringSubmatch(found[2], -1) {
		if l[1] != "le" {
			names = append(names, "`"+l[1]+"`")
		}
	}
	d.labels = strings.Join(names, " ")
}
