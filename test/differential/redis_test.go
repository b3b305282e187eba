package differential

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// dialer opens a connection to a server.
type dialer func() (net.Conn, error)

func to(server *peer.Server) dialer {
	return func() (net.Conn, error) { return peer.Dial(server.Addr) }
}

// finished is the text that a program echoes last.
const finished = "this is the last reply"

var versions = regexp.MustCompile(`"version", ?"7\.[0-9.]+"|"version": "7\.[0-9.]+"`)

// play sends a program, each piece in one write, and returns the replies. It removes the
// connection's number and the server's version, which may differ.
func play(open dialer, p program) (lines []string, err error) {
	conn, err := open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	id, err := askID(conn, r)
	if err != nil {
		return nil, err
	}
	pieces := p.pieces()
	for i, piece := range pieces {
		answered, err := playPiece(conn, r, piece, id)
		if lines = append(lines, answered...); err != nil || piece.ends() {
			return lines, err
		}
		if i < len(pieces)-1 {
			if err := waitForExpiry(open); err != nil {
				return lines, err
			}
		}
	}
	return lines, nil
}

func playPiece(conn net.Conn, r *bufio.Reader, p program, id string) (lines []string, err error) {
	out := p.bytes()
	if !p.ends() {
		if len(p) == 0 || !p[len(p)-1].afterExpiry {
			out = append(out, command("DISCARD")...) // otherwise the following calls would be queued
		}
		out = append(out, command("ECHO", finished)...)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(out)
		failed <- err
	}()
	lines, err = listen(r, id)
	if err != nil || p.ends() {
		conn.Close() // this ends the goroutine that writes
		<-failed
		return lines, err
	}
	return lines, <-failed
}

func askID(conn net.Conn, r *bufio.Reader) (string, error) {
	if _, err := conn.Write(command("CLIENT", "ID")); err != nil {
		return "", err
	}
	return transcript.ReadReply(r)
}

// listen reads until the last reply, or until the connection ends, which it notes as "closed".
func listen(r *bufio.Reader, id string) (lines []string, err error) {
	own := regexp.MustCompile(`"id"(, |: )` + id + `\b`)
	for {
		line, err := transcript.ReadReply(r)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
			return append(lines, "closed"), nil
		case err != nil:
			return lines, fmt.Errorf("after %d replies: %w", len(lines), err)
		case line == id:
			line = "own id"
		case line == `"`+finished+`"`:
			return append(lines, line), nil
		}
		line = versions.ReplaceAllString(line, "version")
		lines = append(lines, own.ReplaceAllString(line, "own id"))
	}
}

// compare plays a program to both servers, and returns the first difference between their replies,
// or "".
func compare(ours, redis dialer, p program) (difference string, err error) {
	if len(p) > 0 && p[0].together {
		return compareSeveral(ours, redis, p)
	}
	got, err := play(ours, p)
	if err != nil {
		return "", fmt.Errorf("cellserver: %w", err)
	}
	want, err := play(redis, p)
	if err != nil {
		return "", fmt.Errorf("redis-server: %w", err)
	}
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w && !isKnownDifference(g) && !(g == "own id" && isNumber(w) || w == "own id" && isNumber(g)) {
			return fmt.Sprintf("reply %d:\n\tredis-server %.600s\n\tcellserver   %.600s", i+1, w, g), nil
		}
	}
	return "", nil
}

// isNumber reports whether a reply is a number. Where a reply equals the connection's number,
// perhaps by chance, compare only asks whether both replies are numbers.
func isNumber(reply string) bool { return strings.Trim(reply, "0123456789") == "" }

// isKnownDifference reports whether a reply of cellserver differs on purpose (docs/differences.md).
func isKnownDifference(reply string) bool { return reply == "-ERR pattern is longer than 1024 bytes" }

// shrink removes steps that the difference does not need, one at a time, until none can be removed.
func shrink(ours, redis dialer, p program) program {
	for i := len(p) - 1; i >= 0; i-- {
		less := slices.Delete(slices.Clone(p), i, i+1)
		if difference, err := compare(ours, redis, less); difference != "" && err == nil {
			p = less
		}
	}
	return p
}

// showsAgain reports whether a program shows a difference again. If not, time made the difference,
// for example in the seconds until an instant: the servers are called one after the other.
func showsAgain(t *testing.T, ours, redis dialer, p program) bool {
	for range 5 {
		difference, err := compare(ours, redis, p)
		require.NoError(t, err)
		if difference != "" {
			return true
		}
	}
	return false
}

// quotes are the parts of errors that repeat a call.
var quotes = regexp.MustCompile(`'.*'|reply \d+`)

// explore compares programs, and returns one report for each kind of difference, and at most a few
// reports.
func explore(t *testing.T, ours, redis dialer, write func(seed uint64) program, seeds uint64) (reports []string) {
	seen := map[string]bool{}
	var fleeting []string
	defer func() {
		assert.LessOrEqual(t, len(fleeting), 1+int(seeds/5000), "differences that did not show again:\n%s",
			strings.Join(fleeting, "\n"))
	}()
	for seed := range seeds {
		p := write(seed)
		difference, err := compare(ours, redis, p)
		require.NoError(t, err, "seed %d\n%s", seed, p)
		if difference == "" {
			continue
		}
		if !showsAgain(t, ours, redis, p) {
			fleeting = append(fleeting, fmt.Sprintf("seed %d, %s", seed, difference))
			continue
		}
		p = shrink(ours, redis, p)
		difference, err = compare(ours, redis, p)
		require.NoError(t, err)
		if kind := quotes.ReplaceAllString(difference, ""); seen[kind] {
			continue
		} else {
			seen[kind] = true
		}
		reports = append(reports, fmt.Sprintf("seed %d\n%s%s", seed, p, difference))
		if len(reports) == 10 {
			break
		}
	}
	return reports
}

// Random programs of the commands that both servers have get the same replies, byte for byte.
func TestRandomProgramsAgainstRedis(t *testing.T) {
	seeds := uint64(600)
	if racetest.Enabled {
		seeds = 200
	}
	reports := explore(t, to(peer.Start(t)), to(peer.StartRedis(t)), newProgram, seeds)
	for _, report := range reports {
		t.Error(report)
	}
}

// A server that differs in one letter of one error is found, and the report has only the call that
// shows it.
func TestPlantedDifferenceIsFound(t *testing.T) {
	redis := to(peer.StartRedis(t))
	wrong := func() (net.Conn, error) {
		conn, err := redis()
		return &tampering{conn, "DB index is out of range", "DB Index is out of range"}, err
	}
	reports := explore(t, wrong, redis, newProgram, 50)
	require.NotEmpty(t, reports)
	lines := strings.Split(reports[0], "\n")
	require.Len(t, lines, 5, "the seed, one step, three lines of difference: %s", reports[0])
	assert.Contains(t, strings.ToUpper(lines[1]), "SELECT")
	assert.Contains(t, lines[3], "DB index")
	assert.Contains(t, lines[4], "DB Index")
}
