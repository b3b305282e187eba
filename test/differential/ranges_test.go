package differential

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// edges are bytes at which ranges begin and end.
var edges = []byte{0, 1, 'A', 'a', 'z', 0x7f, 0x80, 0x81, 0xc3, 0xfe, 0xff}

// rangePatterns returns patterns of one class each, with all ranges between two edges.
func rangePatterns() (patterns []string) {
	for _, from := range edges {
		for _, to := range edges {
			patterns = append(patterns, string([]byte{'[', from, '-', to, ']'}), string([]byte{'[', '^', from, '-', to, ']'}))
		}
	}
	return patterns
}

// keysOfBytes sets a key for each byte, and returns which of them each pattern matches.
func keysOfBytes(t *testing.T, conn net.Conn) (matched map[string][]string) {
	r, matched := bufio.NewReader(conn), map[string][]string{}
	ask := func(words ...string) string {
		_, err := conn.Write(command(words...))
		require.NoError(t, err)
		all, err := replies(r, 1)
		require.NoError(t, err)
		return all[0]
	}
	for b := range 256 {
		require.NotEmpty(t, ask("SET", string([]byte{byte(b)}), "v"))
	}
	for _, pattern := range rangePatterns() {
		keys := strings.Split(strings.TrimSuffix(strings.TrimPrefix(ask("KEYS", pattern), `["`), `"]`), `", "`)
		slices.Sort(keys)
		matched[pattern] = keys
	}
	return matched
}

// Ranges in patterns match the bytes that they match in Redis, which compares bytes from 0x80 on as negative
// numbers, as its compiler does on most machines.
func TestRangesOfBytesAgainstRedis(t *testing.T) {
	ours := keysOfBytes(t, dial(t, peer.Start(t).Addr))
	redis := keysOfBytes(t, dial(t, peer.StartRedis(t).Addr))
	for _, pattern := range rangePatterns() {
		require.Equal(t, redis[pattern], ours[pattern], "%q", pattern)
	}
}
