package page

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The page, INFO and cellserver top show the domains of Envoys, with counts of the decisions about
// them.
func TestDomainsAreShown(t *testing.T) {
	config := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(config, []byte("domain: <b>shop\ndescriptors:\n- key: user\n"+
		"  rate_limit: {unit: year, requests_per_unit: 2}\n"), 0o600))
	port, envoys := peer.FreePort(t), peer.FreePort(t)
	s := peer.StartPlain(t, "--metrics-port", strconv.Itoa(port), "--page-open", "yes", "--envoy-config", config,
		"--grpc-port", strconv.Itoa(peer.FreePort(t)), "--envoy-http-port", strconv.Itoa(envoys))
	for range 3 {
		r, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/json", envoys), "application/json",
			strings.NewReader(`{"domain":"<b>shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`))
		require.NoError(t, err)
		r.Body.Close()
	}
	assert.Contains(t, peer.Ask(t, s.Addr, "INFO", "envoy"), `envoy_domain0:limits=1,ok=2,over_limit=1,name="<b>shop"`)
	b := startBrowser(t)
	b.open(fmt.Sprintf("http://127.0.0.1:%d/", port))
	b.until(`byId("domains").rows.length === 1`)
	var rows [][]string
	b.get(&rows, `[...byId("domains").rows].map((r) => [...r.cells].map((c) => c.textContent))`)
	assert.Equal(t, [][]string{{"<b>shop", "1", "2", "1"}}, rows)
	assert.Empty(t, b.complaints())
	host, number, _ := strings.Cut(s.Addr, ":")
	out, err := peer.Command("top", "--once", "--interval", "1s", "-h", host, "-p", number).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), `"<b>shop"            limits: 1; allowed: 2; over the limit: 1`)
}
