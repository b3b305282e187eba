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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The real server posts signed reports, does not show the URL or the secret, and posts what waits before it ends.
func TestWebhook(t *testing.T) {
	const secret = "not-for-other-people"
	got, release := make(chan string, 10), make(chan struct{})
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
	defer receiver.Close()
	dir := t.TempDir()
	policies, key := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(policies, []byte("policies: {p: {limits: [{fixed: {limit: 1, period: 60s}}], notify: [100%]}}"), 0o600))
	require.NoError(t, os.WriteFile(key, []byte(secret+"\n"), 0o600))
	s := peer.Start(t, "--policies", policies, "--webhook", receiver.URL+"/?token=hidden", "--webhook-secret-file", key)
	c := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS})
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
	close(got)
	subjects := ""
	for subject := range got {
		subjects += subject
	}
	require.Len(t, subjects, 6)
	for _, subject := range "abcdef" {
		require.Contains(t, subjects, string(subject))
	}
	require.NotContains(t, s.Log(), "hidden")
	require.NotContains(t, s.Log(), secret)
}
