package differential

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// In these programs time passes in small steps: keys expire within a few milliseconds, and the
// program waits until they have expired by each server's own clock. All other times in these
// programs are longer.

// shortExpiries are calls that let the key k expire within at most m milliseconds.
var shortExpiries = [][]string{
	{"SET", "k", "v", "PX", "m"}, {"PSETEX", "k", "m", "v"}, {"PEXPIRE", "k", "m"}, {"GETEX", "k", "PX", "m"},
	{"PEXPIRE", "k", "m", "LT"},
	{"PEXPIRE", "k", "m", "NX"}, {"SET", "k", "v", "XX", "PX", "m"}, {"SET", "k", "v", "GET", "PX", "m"},
}

// longestExpiry is the longest time to live of such a key, and expiryWait how long the program
// waits; both in milliseconds.
const longestExpiry, expiryWait = 15, 30

func newExpiryProgram(seed uint64) program { return newAuthor(seed, 2).expiryProgram() }

func (a *author) expiryProgram() (p program) {
	if a.IntN(2) == 0 {
		p = append(p, step{bytes: string(command("HELLO", "3"))})
	}
	p = append(p, step{bytes: string(command("FLUSHALL"))})
	for range 2 {
		for range 2 + a.IntN(20) {
			p = append(p, step{bytes: string(command(a.valueCall()...))})
		}
		p = append(p, a.expireSoon())
	}
	for range 5 + a.IntN(15) {
		p = append(p, step{bytes: string(command(a.valueCall()...))})
	}
	return p
}

// expireSoon lets some keys expire, each at most once, perhaps in a transaction, and perhaps
// watched.
func (a *author) expireSoon() step {
	out := command("DISCARD")
	if a.IntN(3) == 0 && (a.avoids == nil || !a.avoids([]string{"WATCH"})) {
		out = append(out, command("WATCH", a.pick(valueKeys))...)
	}
	together := a.IntN(4) == 0
	if together {
		out = append(out, command("MULTI")...)
	}
	for _, n := range a.Perm(len(valueKeys))[:1+a.IntN(len(valueKeys))] {
		var call []string
		for _, word := range shortExpiries[a.IntN(len(shortExpiries))] {
			switch word {
			case "k":
				word = valueKeys[n]
			case "v":
				word = a.pick(values)
			case "m":
				word = strconv.Itoa(1 + a.IntN(longestExpiry))
			}
			call = append(call, word)
		}
		out = append(out, command(call...)...)
	}
	if together {
		out = append(out, command("EXEC")...)
	}
	return step{bytes: string(out), afterExpiry: true}
}

// waitForExpiry returns when all keys with a short time to live have expired by the server's clock.
func waitForExpiry(open dialer) error {
	conn, err := open()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	call := command("SET", "until this is gone", "", "PX", strconv.Itoa(expiryWait))
	for tries := 0; ; tries++ {
		if _, err := conn.Write(call); err != nil {
			return err
		}
		reply, err := transcript.ReadReply(r)
		switch {
		case err != nil:
			return err
		case reply == "0":
			return nil
		case tries > 10_000_000:
			return fmt.Errorf("a key of %d ms has not expired", expiryWait)
		}
		call = command("EXISTS", "until this is gone")
	}
}

// Keys expire as in Redis, for clients that read, write, watch or queue calls.
// CELLSERVER_TEST_PROGRAMS and CELLSERVER_TEST_SEED are for longer runs.
func TestRandomExpiryProgramsAgainstRedis(t *testing.T) {
	programs, first := uint64(50), uint64(0)
	if racetest.Enabled {
		programs = 15
	}
	if n, err := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_PROGRAMS"), 10, 64); err == nil {
		programs = n
	}
	first, _ = strconv.ParseUint(os.Getenv("CELLSERVER_TEST_SEED"), 10, 64)
	reports := explore(t, to(peer.Start(t)), to(peer.StartRedis(t, "--proto-max-bulk-len", "1mb")),
		func(seed uint64) program { return newExpiryProgram(first + seed) }, programs)
	for _, report := range reports {
		t.Error(report)
	}
}

// keepsKeys is a connection to a server with a planted bug: SET PX with less than ten milliseconds
// sets a minute and a half.
type keepsKeys struct{ net.Conn }

var shortLives = regexp.MustCompile(`\$2\r\nPX\r\n\$1\r\n\d\r\n`)

func (c keepsKeys) Write(b []byte) (int, error) {
	if _, err := c.Conn.Write(shortLives.ReplaceAll(b, []byte("$$2\r\nPX\r\n$$5\r\n90000\r\n"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func TestExpiryProgramsFindKeysThatStay(t *testing.T) {
	redis := to(peer.StartRedis(t))
	wrong := func() (net.Conn, error) {
		conn, err := redis()
		return keepsKeys{conn}, err
	}
	reports := explore(t, wrong, redis, newExpiryProgram, 2) // shrinking a report takes a second
	require.NotEmpty(t, reports)
	assert.Contains(t, reports[0], "PX")
}
