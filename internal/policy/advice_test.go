package policy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
)

// The advice names an override that no request can match, and no other override.
func TestAdviceOnOverrides(t *testing.T) {
	hex := strings.Repeat("0a", 32)
	for from, patterns := range map[string]map[string]bool{
		"{hash header.X-Api-Key}": {"vip-*": false, "*": true, "a*": true, "g*": false, "A*": false, hex: true,
			hex[1:]: false, "[x-z]*": false, "[^x]?*": true},
		"key-{hash header.X-Api-Key}": {"key-*": true, "key-g*": false, "vip-*": false,
			"key-" + hex: true, hex: false, "key-\\b*": true},
		"{client_ip}":        {"vip-*": false, "10.0.0.*": true, "2001:db8:*": true, "-": true},
		"{header.X-Tenant}":  {"vip-*": true, "*": true},
		"{host}/{client_ip}": {"shop.example/*": true, "shop.example": false, "*/10.*": true, "*/vip": false},
		"all":                {"all": true, "al?": true, "a": false, "all*": true, "every": false},
	} {
		for pattern, reached := range patterns {
			s, err := Parse([]File{{Name: "a.yaml", Text: []byte("policies:\n  p:\n    limits: [{fixed: {limit: 1, period: 1m}}]\n" +
				"    from: '" + from + "'\n    overrides: [{subject: '" + pattern + "', unlimited: true}]\n")}}, Options{})
			require.NoError(t, err)
			assert.Equal(t, reached, len(s.Advice()) == 0, "%s and %s: %v", from, pattern, s.Advice())
		}
	}
}

// The advice about a throttle says how much the algorithm admits in the worst case.
func TestAdviceOnThrottles(t *testing.T) {
	const why = ": the burst, and what comes back meanwhile"
	for text, want := range map[string]string{
		"{burst: 100, rate: 100/10s}": "p: throttle burst 100, rate 100/10s admits up to 199 in 10s" + why,
		"{burst: 20, rate: 60/1h}":    "p: throttle burst 20, rate 60/1h admits up to 79 in 1h" + why,
		"{burst: 1, rate: 10/1s}":     "",
		"{burst: 0, rate: 10/1s}":     "",
	} {
		file := "policies: {p: {limits: [{throttle: " + text + "}]}}"
		s, err := Parse([]File{{Name: "a.yaml", Text: []byte(file)}}, Options{})
		require.NoError(t, err)
		assert.Equal(t, want, strings.Join(s.Advice(), "\n"))
		if want != "" {
			l := &s.policies["p"].Limits[0]
			assert.Contains(t, want, "up to "+admitted(t, l.Throttle, l.rate.length())+" in ")
		}
	}
}

// admitted returns how many tokens a throttle admits in a period that begins with a full bucket, to a client that
// takes each token as soon as it has come back.
func admitted(t *testing.T, l gcra.Limit, period time.Duration) string {
	count, tat := 0, int64(0)
	for now := int64(0); now < int64(period); {
		d, next, err := l.Step(now, tat, 1, quota.Take)
		require.NoError(t, err)
		if d.Limited {
			now += int64(d.RetryAfter)
			continue
		}
		count, tat = count+1, next
	}
	return strconv.Itoa(count)
}
