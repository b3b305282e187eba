package transcript

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// times are the integers of a reply that are durations, until something ends.
type times struct {
	pattern *regexp.Regexp // of the reply, with a group for each of them
	each    []time.Duration
	units   []time.Duration
}

// A string is found first, so that nothing within it is taken for a duration.
var timeOrString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\b(\d+)(ms|s)\b`)

// parseTimes splits an expected reply such as [0, 10, 9, -1, 60s] into the reply, without units, and its times.
// They are nil if there is none.
func parseTimes(line string) (text string, found *times) {
	if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
		return line, nil // words
	}
	t, plain, pattern, end := &times{}, "", "", 0
	for _, at := range timeOrString.FindAllStringSubmatchIndex(line, -1) {
		value, err := time.ParseDuration(line[at[0]:at[1]])
		if err != nil {
			continue // a string
		}
		unit := time.Second
		if line[at[4]:at[5]] == "ms" {
			unit = time.Millisecond
		}
		t.each, t.units = append(t.each, value), append(t.units, unit)
		before := line[end:at[0]]
		plain, pattern, end = plain+before+line[at[2]:at[3]], pattern+regexp.QuoteMeta(before)+`(-?\d+)`, at[1]
	}
	if len(t.each) == 0 {
		return line, nil
	}
	t.pattern = regexp.MustCompile("^" + pattern + regexp.QuoteMeta(line[end:]) + "$")
	return plain + line[end:], t
}

// match reports whether each time of a reply is as expected, or less by up to late, rounded up to its unit.
func (t *times) match(reply string, late time.Duration) bool {
	groups := t.pattern.FindStringSubmatch(reply)
	if groups == nil {
		return false
	}
	for i, want := range t.each {
		n, err := strconv.ParseInt(groups[i+1], 10, 32)
		less := want - time.Duration(n)*t.units[i]
		if err != nil || n < 0 || less < 0 || less >= late+t.units[i] {
			return false
		}
	}
	return true
}
