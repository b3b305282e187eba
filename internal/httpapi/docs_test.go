package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocumentedExamples sends the requests of docs/http-api.md, and compares the responses with what
// follows them. A header that an example does not show may have any value.
func TestDocumentedExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/http-api.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(page), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	a := newAPIWith(t, shown)
	blocks := strings.Split(string(page), "```http\n")[1:]
	require.NotEmpty(t, blocks)
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	for ; len(blocks) > 0; blocks = blocks[2:] {
		status, header, body := a.do(parseRequest(t, a, blocks[0]))
		want, err := http.ReadResponse(bufio.NewReader(strings.NewReader(crlf(blocks[1]))), nil)
		require.NoError(t, err, blocks[1])
		assert.Equal(t, want.StatusCode, status, blocks[0])
		for name := range want.Header {
			assert.Equal(t, want.Header.Get(name), header.Get(name), "%s: %s", blocks[0], name)
		}
		text, err := io.ReadAll(want.Body)
		require.NoError(t, err)
		assert.Equal(t, strings.TrimSpace(string(text)), body, blocks[0])
	}
}

func parseRequest(t *testing.T, a *api, text string) *http.Request {
	t.Helper()
	shown, err := http.ReadRequest(bufio.NewReader(strings.NewReader(crlf(text))))
	require.NoError(t, err, text)
	_, body, _ := strings.Cut(text, "\n\n")
	r, err := http.NewRequest(shown.Method, "http://"+a.address+shown.URL.String(), strings.NewReader(body))
	require.NoError(t, err)
	r.Header = shown.Header
	return r
}

// crlf gives the lines of a header the ends that HTTP requires.
func crlf(text string) string {
	header, body, _ := strings.Cut(text, "\n\n")
	return strings.ReplaceAll(header, "\n", "\r\n") + "\r\n\r\n" + body
}
