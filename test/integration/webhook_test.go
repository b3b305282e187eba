package integration

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The real server posts signed reports, and does not show the URL or the secret. Before it ends, it posts the
// reports that wait, for three seconds at most. If it has posted fewer because the machine is busy, the test tries
// again.
func TestWebhook(t *testing.T) {
	for tries := 1; ; tries++ {
		posted, took := postedAtTheEnd(t)
		if slices.Equal(posted, []string{"a", "b", "c", "d", "e", "f"}) {
			return
		}
		require.Greater(t, took, 2*time.Second, "posted: %q", posted)
		require.Less(t, tries, 10, "posted: %q", posted)
	}
}

// postedAtTheEnd stops a server while its reports wait. It returns the subjects of the reports that were posted,
// sorted, and the time from the first report to the end of the server.
func postedAtTheEnd(t *testing.T) (posted []string, took time.Duration) {
	const secret = "not-for-other-people"
	got, release := make(chan string, 100), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(r.Header.Get("Cellserver-Timestamp") + "." + string(body)))
		assert.Equal(t, "v1="+hex.EncodeToString(mac.Sum(nil)), r.Header.Get("Cellserver-Signature"))
		event := make(map[string]any)
		assert.NoError(t, json.Unmarshal(body, &event))
		assert.Equal(t, r.Header.Get("Cellserver-Event-Id"), event["id"])
		<-release
		got <- event["subject"].(string)
	}))
	t.Cleanup(receiver.Close) // also if the test fails before the receiver is closed below
	dir := t.TempDir()
	policies, key := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(policies, []byte("policies: {p: {limits: [{fixed: {limit: 1, period: 60s}}], notify: [100%]}}"), 0o600))
	require.NoError(t, os.WriteFile(key, []byte(secret+"\n"), 0o600))
	s := peer.Start(t, "--policies", policies, "--webhook", receiver.URL+"/?token=hidden", "--webhook-secret-file", key)
	c := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS})
	began := time.Now()
	for _, subject := range []string{"a", "b", "c", "d", "e", "f"} { // no post is answered yet
		require.NoError(t, c.Do(t.Context(), "CL.TAKE", subject, "p").Err())
	}
	shown, err := c.ConfigGet(t.Context(), "*").Result()
	require.NoError(t, err)
	for name, value := range shown {
		require.False(t, strings.Contains(value, "hidden") || strings.Contains(value, secret), name)
	}
	arguments, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/cmdline")
	if err == nil { // there is such a file on Linux only
		require.NotContains(t, string(arguments), "hidden")
	}
	s.Signal(syscall.SIGTERM)
	close(release)
	require.Zero(t, s.Wait())
	took = time.Since(began)
	require.NotContains(t, s.Log(), "hidden")
	require.NotContains(t, s.Log(), secret)
	receiver.Close() // returns when its handlers have ended
	close(got)
	for subject := range got {
		posted = append(posted, subject)
	}
	slices.Sort(posted)
	return posted, took
}
