package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The page works for a server whose keys are in a real redis-server: it shows decisions, a key that is looked up
// and deleted, policies, and bans.
func TestPageOverAStore(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "policies.yaml"),
		[]byte("policies:\n  login: {limits: [{fixed: {limit: 5, period: 1m}}]}\n"), 0o600))
	port := peer.FreePort(t)
	s := peer.StartPlain(t, "--store", "redis://"+peer.StartStore(t).Addr, "--policies", folder,
		"--metrics-port", strconv.Itoa(port), "--page-open", "yes",
		"--store-timeout", "30000") // a browser makes the machine busy
	for range 3 {
		peer.Ask(t, s.Addr, "CL.THROTTLE", "<b>user", 0, 1, 600)
	}
	peer.Ask(t, s.Addr, "CL.BAN", "eve", "login", 7200, "guessing")
	b := startBrowser(t)
	b.open(fmt.Sprintf("http://127.0.0.1:%d/", port))
	b.until(`byId("limited").textContent.includes("user")`)
	b.eval(`byId("limited").querySelector("button").click()`)
	b.until(`!byId("result").hidden`)
	var found, policy, banned string
	b.get(&found, `byId("result-key").textContent + " " + byId("result-kind").textContent`)
	assert.Equal(t, `"<b>user" cl.throttle`, found)
	b.get(&policy, `byId("policies").rows[0].textContent`)
	assert.Equal(t, "loginfixed limit 5, period 1mshow", policy)
	b.eval(`byId("policies").querySelector("button").click()`)
	b.until(`!byId("bans-table").hidden`)
	b.get(&banned, `byId("bans").rows[0].cells[0].textContent + byId("bans").rows[0].cells[2].textContent`)
	assert.Equal(t, `"eve""guessing"`, banned)
	b.eval(`byId("delete").click(), byId("confirm-delete").click()`)
	b.until(`byId("lookup-notice").textContent === "The key was deleted."`)
	assert.Equal(t, int64(0), peer.Ask(t, s.Addr, "EXISTS", "<b>user"))
	assert.Empty(t, b.complaints())
}
