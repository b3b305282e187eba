package page

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// With the options at the beginning of docs/page.md, the page shows the first limited key a moment after it
// was limited. An open page does not delay the server's end.
func TestStart(t *testing.T) {
	port := peer.FreePort(t)
	s := peer.StartPlain(t, "--metrics-port", strconv.Itoa(port), "--page-open", "yes")
	b := startBrowser(t)
	b.open(fmt.Sprintf("http://127.0.0.1:%d/", port))
	b.until(`byId("status").textContent === "live"`)
	for range 2 {
		peer.Ask(t, s.Addr, "CL.THROTTLE", "user123", 0, 1, 60)
	}
	b.until(`byId("limited").textContent.includes('"user123"')`)
	b.until(`history.length > 1`)
	var text string
	b.get(&text, `byId("decisions").rows[0].cells[0].textContent + byId("user").textContent`)
	assert.Equal(t, `CL.THROTTLEuser "default"`, text)
	require.Empty(t, b.complaints())
	s.Signal(syscall.SIGTERM)
	assert.Zero(t, s.Wait())
	assert.NotContains(t, s.Stderr(), "shut down before all clients")
	b.until(`byId("status").textContent !== "live"`)
}
