package differential

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// invalidations are programs whose invalidations go to another client with REDIRECT. A transcript
// for Redis cannot contain them, because it cannot know the other client's number.
var invalidations = map[string]string{
	"one message for each prefix": `
		B CLIENT TRACKING ON BCAST PREFIX k
		D PSUBSCRIBE *
		B CLIENT TRACKING ON REDIRECT client-3 BCAST
		C SET x text EX 100
		B RENAME x kb
		A MSET ka 1 x 2`,
	"NOLOOP for each prefix": `
		D HELLO 3
		B CLIENT TRACKING ON BCAST NOLOOP PREFIX k
		B CLIENT TRACKING ON REDIRECT client-3 BCAST NOLOOP
		B INCR ka
		C INCR ka`,
	"two clients, one of which has made the change": `
		D HELLO 3
		D CLIENT TRACKING ON
		D EXISTS k ka
		A CLIENT TRACKING ON REDIRECT client-3
		A MGET ka k x
		A MSET x 1 ka 2
		A DEL k`,
	"two clients and a flush": `
		D HELLO 3
		D CLIENT TRACKING ON REDIRECT client-3
		A CLIENT TRACKING ON REDIRECT client-3
		A FLUSHALL`,
}

// parseProgram reads a program: each line is a step, which begins with its client.
func parseProgram(text string) (p program) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		words := strings.Fields(line)
		p = append(p, step{client: int(words[0][0] - 'A'), together: true, bytes: string(command(words[1:]...))})
	}
	return p
}

func TestInvalidationsOfSeveralAgainstRedis(t *testing.T) {
	ours, redis := startForSeveral(t)
	for what, text := range invalidations {
		difference, err := compare(ours, redis, parseProgram(text))
		require.NoError(t, err, what)
		assert.Empty(t, difference, what)
	}
}
