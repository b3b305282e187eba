package envoy

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// logReport is the part of a report that the test looks at.
type logReport struct {
	Requests, Limited int64
	Subjects          int
	Log               struct {
		Format   string
		Bad      int
		From, To time.Time
	}
	MostLimited []struct {
		Subject   string
		Requests  int64
		Succeeded float64
	} `json:"most_limited"`
}

// policies replay reads back the access log that Envoy writes by default, in which nothing is escaped, with the
// requests that were sent: who, when, to which host, and how they were answered. A line with a quotation mark in a
// header is ambiguous, so it counts as bad.
func TestAccessLogIsReadBack(t *testing.T) {
	folder := t.TempDir() // not that of the limits, in which the server would read the files
	path := filepath.Join(folder, "access.log")
	logged := "stat_prefix: http\n                access_log:\n" +
		"                  - name: envoy.access_loggers.file\n                    typed_config: {\"@type\": " +
		"type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: " + path + "}"
	s := start(t, write(t, "shop.yaml", limits(9, "")))
	address := startEnvoy(t, envoyProgram(t), s.port, "stat_prefix: http\n", logged+"\n")
	const forged = `203.0.113.8" "curl" "1" "other.example" "127.0.0.1`
	before := time.Now().Add(-time.Millisecond)
	for i, client := range []string{"203.0.113.7", "203.0.113.7", "2001:db8::9", "203.0.113.7", forged} {
		r, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
		require.NoError(t, err)
		r.Header.Set("X-Forwarded-For", client)
		r.Header.Set("User-Agent", `ends with a \`)
		r.Host = []string{"shop.example", "Shop.example:80"}[i%2]
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		response.Body.Close()
	}
	peer.Until(t, "Envoy writes its log", func() bool {
		text, _ := os.ReadFile(path)
		return strings.Count(string(text), "\n") == 5
	})
	policies := filepath.Join(folder, "p.yaml")
	const limit = "policies: {p: {limits: [{fixed: {limit: 1, period: 1h}}]}}"
	require.NoError(t, os.WriteFile(policies, []byte(limit), 0o600))
	out, err := peer.Command("policies", "replay", policies, path, "--json", "--bad", "20%",
		"--subject", "{client_ip} {host}").Output()
	require.NoError(t, err)
	var report logReport
	require.NoError(t, json.Unmarshal(out, &report), string(out))
	assert.Equal(t, "envoy", report.Log.Format)
	assert.Equal(t, 1, report.Log.Bad)
	assert.EqualValues(t, 4, report.Requests)
	assert.Equal(t, 2, report.Subjects)
	assert.EqualValues(t, 2, report.Limited)
	assert.WithinRange(t, report.Log.From, before, time.Now())
	require.Len(t, report.MostLimited, 1)
	assert.Equal(t, "203.0.113.7 shop.example", report.MostLimited[0].Subject)
	assert.EqualValues(t, 3, report.MostLimited[0].Requests)
	assert.InDelta(t, 1, report.MostLimited[0].Succeeded, 0)
}
