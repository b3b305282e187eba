package differential

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/internal/server"
	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// In these programs several clients act in turn: they publish and subscribe, cache and change keys,
// and watch. The test compares all that each client receives, in order. It does not compare the
// order between two clients.

// clientCount is the number of clients in a program.
const clientCount = 4

// player is a client of such a program.
type player struct {
	conn   net.Conn
	unread []byte // begins with a reply that has not arrived completely
	lines  []string
	gone   bool // the server has disconnected
}

// late is the longest wait for a message. On a busy machine messages may take a while.
const late = time.Minute

// wait reads until there are at least until lines, or the last line has arrived, or patience is over.
func (g *player) wait(until int, last string, patience time.Duration) error {
	if err := g.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for buffer := make([]byte, 16<<10); !g.gone; {
		if len(g.lines) >= until && (last == "" || slices.Contains(g.lines, last)) {
			break
		}
		n, err := g.conn.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		g.receive(buffer[:n], err)
	}
	return nil
}

// drain reads what has arrived on a TCP connection, without waiting.
func (g *player) drain() error {
	raw, err := g.conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = g.conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) (done bool) {
		for buffer := make([]byte, 16<<10); !g.gone; {
			n, err := syscall.Read(int(fd), buffer)
			if errors.Is(err, syscall.EAGAIN) {
				break
			}
			if n == 0 && err == nil {
				err = io.EOF
			}
			g.receive(buffer[:max(n, 0)], err)
		}
		return true
	})
}

// receive adds what a read has returned. The end of the connection is the line "closed".
func (g *player) receive(b []byte, err error) {
	g.unread = append(g.unread, b...)
	for len(g.unread) > 0 {
		line, rest, invalid := transcript.NextReply(g.unread)
		if errors.Is(invalid, io.ErrUnexpectedEOF) {
			break
		}
		if invalid != nil {
			err = invalid
			break
		}
		g.lines, g.unread = append(g.lines, line), rest
	}
	switch {
	case err == nil:
		return
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		g.lines = append(g.lines, "closed")
	default:
		g.lines = append(g.lines, "error: "+err.Error())
	}
	g.gone = true
}

// session has a program's clients of one server, and one more client, which takes no part.
type session struct {
	late    bool // an expected message did not arrive
	players []*player
	ids     []string
	other   net.Conn
	replies *bufio.Reader
}

func (c *session) leave() {
	for _, g := range c.players {
		g.conn.Close()
	}
	c.other.Close()
}

func connectPlayers(open dialer) (*session, error) {
	other, err := open()
	if err != nil {
		return nil, err
	}
	c := &session{other: other, replies: bufio.NewReader(other)}
	for _, call := range []string{"FLUSHALL",
		"CLIENT TRACKING ON"} { // cellserver records what was read only while a client caches
		if _, err := c.ask(strings.Fields(call)...); err != nil {
			return c, err
		}
	}
	for range clientCount {
		conn, err := open()
		if err != nil {
			return c, err
		}
		g := &player{conn: conn}
		c.players = append(c.players, g)
		if _, err := conn.Write(command("CLIENT", "ID")); err != nil {
			return c, err
		}
		if err := g.wait(1, "", patience); err != nil {
			return c, err
		}
		c.ids, g.lines = append(c.ids, g.lines[0]), nil
	}
	return c, nil
}

func (c *session) ask(words ...string) (string, error) {
	if _, err := c.other.Write(command(words...)); err != nil {
		return "", err
	}
	return transcript.ReadReply(c.replies)
}

// turn sends a client's step, and returns when the server has executed it. A server reads from
// every client that has sent something before it reads from one of them again, so the step is
// executed before the extra client's second PING is answered. cellserver may execute some calls
// outside its loop even later: pace says how many lines to wait for. redis-server, which is called
// without a pace, has sent all lines by then.
func (c *session) turn(s step, pace []int) error {
	g := c.players[s.client]
	if g.gone {
		return nil
	}
	text := s.bytes
	for i, id := range c.ids {
		number := "client-" + strconv.Itoa(i)
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d\r\n%s\r\n", len(number), number),
			fmt.Sprintf("$%d\r\n%s\r\n", len(id), id))
	}
	if _, err := g.conn.Write([]byte(text)); err != nil && !errors.Is(err, syscall.EPIPE) &&
		!errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	for range 2 {
		if _, err := c.ask("PING"); err != nil {
			return err
		}
	}
	for i, g := range c.players {
		switch {
		case pace == nil && !g.gone:
			if err := g.drain(); err != nil {
				return err
			}
		case pace != nil && !c.late:
			if err := g.wait(pace[i], "", late); err != nil {
				return err
			}
			c.late = len(g.lines) < pace[i]
		}
	}
	return nil
}

// counts returns how many lines each client has received.
func (c *session) counts() (lines []int) {
	for _, g := range c.players {
		lines = append(lines, len(g.lines))
	}
	return lines
}

// playSeveral plays a program. It returns what each client has received, and how many lines each
// client had received after each step. With a pace from an earlier run, it waits after each step
// until every client has received as many lines.
func playSeveral(open dialer, p program, pace [][]int) (received [][]string, counts [][]int, err error) {
	c, err := connectPlayers(open)
	if c != nil {
		defer c.leave()
	}
	if err != nil {
		return nil, nil, err
	}
	for i, s := range p {
		var until []int
		if pace != nil {
			until = pace[i]
		}
		if err := c.turn(s, until); err != nil {
			return nil, nil, fmt.Errorf("turn %d: %w", i, err)
		}
		counts = append(counts, c.counts())
	}
	last := `"` + finished + `"`
	for i, g := range c.players {
		if !g.gone {
			_, _ = g.conn.Write(append(command("RESET"), command("ECHO", finished)...)) // fails if the client is disconnected
			if err := g.wait(0, last, late); err != nil {
				return nil, nil, err
			}
		}
		received = append(received, c.plain(i))
	}
	return received, counts, nil
}

var (
	ended     = regexp.MustCompile(`^(push)?\["(p|s)?unsubscribe", (.*), (\d+)\]$`)
	byPattern = regexp.MustCompile(`^(?:push)?\["pmessage", ".*", (".*", ".*")\]$`)
	nameList  = regexp.MustCompile(`^\[("[\w:]+"(, "[\w:]+")*)\]$`)
)

// plain returns what a client has received, without the numbers of clients, and sorted where the
// order is unspecified: the channels that UNSUBSCRIBE without a name ends, the patterns that match
// one message, and the names in PUBSUB CHANNELS.
func (c *session) plain(i int) []string {
	lines := slices.Clone(c.players[i].lines)
	for n, line := range lines {
		for i, id := range c.ids {
			line = regexp.MustCompile(`\b`+id+`\b`).ReplaceAllString(line, "client-"+strconv.Itoa(i))
		}
		if list := nameList.FindStringSubmatch(line); list != nil && !strings.Contains(line, "message") {
			names := strings.Split(list[1], ", ")
			slices.Sort(names)
			line = "[" + strings.Join(names, ", ") + "]"
		}
		lines[n] = versions.ReplaceAllString(line, "version")
	}
	sortRuns(lines, func(line string) string {
		if m := byPattern.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		return ""
	})
	return sortEnds(lines)
}

// sortRuns sorts consecutive lines of one kind. The kind "" is not sorted.
func sortRuns(lines []string, kind func(string) string) {
	for from := 0; from < len(lines); {
		until := from + 1
		for until < len(lines) && kind(lines[from]) != "" && kind(lines[until]) == kind(lines[from]) {
			until++
		}
		slices.Sort(lines[from:until])
		from = until
	}
}

// sortEnds sorts the names of subscriptions that ended one after the other. The remaining counts
// stay in place.
func sortEnds(lines []string) []string {
	for from := 0; from < len(lines); {
		var names []string
		until := from
		for ; until < len(lines); until++ {
			m := ended.FindStringSubmatch(lines[until])
			if m == nil || until > from && m[2] != ended.FindStringSubmatch(lines[from])[2] {
				break
			}
			names = append(names, m[3])
		}
		slices.Sort(names)
		for i, name := range names {
			m := ended.FindStringSubmatch(lines[from+i])
			lines[from+i] = fmt.Sprintf(`%s["%sunsubscribe", %s, %s]`, m[1], m[2], name, m[4])
		}
		from = max(until, from+1)
	}
	return lines
}

// compareSeveral plays a program of several clients to both servers.
func compareSeveral(ours, redis dialer, p program) (difference string, err error) {
	want, pace, err := playSeveral(redis, p, nil)
	if err != nil {
		return "", fmt.Errorf("redis-server: %w", err)
	}
	got, _, err := playSeveral(ours, p, pace)
	if err != nil {
		return "", fmt.Errorf("cellserver: %w", err)
	}
	for i := range clientCount {
		for n := range max(len(got[i]), len(want[i])) {
			g, w := "nothing", "nothing"
			if n < len(got[i]) {
				g = got[i][n]
			}
			if n < len(want[i]) {
				w = want[i][n]
			}
			if g != w {
				return fmt.Sprintf("client %c, reply %d:\n\tredis-server %.600s\n\tcellserver   %.600s", 'A'+i, n+1, w, g), nil
			}
		}
	}
	return "", nil
}

// generator writes programs of several clients. It knows which calls each client may not make next.
type generator struct {
	*author
	silenced [clientCount]bool // the client may have switched replies off
	queues   [clientCount]bool // the client may be in a transaction
	message  int
}

var (
	guestKeys = strings.Fields("k ka kb x")
	channels  = strings.Fields("news nets n")
	patterns  = strings.Fields("n* ne[wt]s * x?")
)

// observer is the client to which others redirect their messages. It makes no changes, because
// Redis sends redirected messages before the reply to the change, and in the middle of a
// transaction's reply.
const observer = clientCount - 1

// Forms of calls: k is a key, c a channel, p a pattern, f a prefix of keys, g a client's number, v
// a value, m a new message.
const (
	listens = `
SUBSCRIBE c
SUBSCRIBE c c
UNSUBSCRIBE c
UNSUBSCRIBE
PSUBSCRIBE p
PSUBSCRIBE p p
PUNSUBSCRIBE p
PUNSUBSCRIBE
SSUBSCRIBE c
SUNSUBSCRIBE c
SUNSUBSCRIBE
PUBLISH c m
PUBLISH c m
PUBLISH c m
SPUBLISH c m
PUBSUB NUMSUB c c
PUBSUB NUMPAT
PUBSUB SHARDNUMSUB c
PUBSUB CHANNELS
PUBSUB CHANNELS p
PUBSUB SHARDCHANNELS
PING
PING v
SUBSCRIBE __redis__:invalidate`
	caches = `
CLIENT TRACKING ON
CLIENT TRACKING ON
CLIENT TRACKING ON NOLOOP
CLIENT TRACKING ON BCAST
CLIENT TRACKING ON BCAST PREFIX f
CLIENT TRACKING ON BCAST PREFIX f PREFIX f
CLIENT TRACKING ON BCAST NOLOOP PREFIX f
CLIENT TRACKING ON OPTIN
CLIENT TRACKING ON OPTOUT
CLIENT TRACKING ON OPTIN NOLOOP
CLIENT TRACKING ON REDIRECT g
CLIENT TRACKING ON REDIRECT g BCAST
CLIENT TRACKING ON OPTIN OPTOUT
CLIENT TRACKING OFF
CLIENT CACHING YES
CLIENT CACHING YES
CLIENT CACHING NO
CLIENT TRACKINGINFO
CLIENT GETREDIR`
	reads = `
GET k
GET k
MGET k k
EXISTS k k
STRLEN k
TYPE k
PTTL none`
	changes = `
SET k v
SET k v
MSET k v k v
INCR k
APPEND k v
DEL k
DEL k k
GETDEL k
RENAME k k
COPY k k
EXPIRE k 100
PERSIST k
SET k v EX 100
FLUSHALL
FLUSHDB
SELECT 1
SELECT 0
MOVE k 1`
	manners = `
HELLO 3
HELLO 3
HELLO 2
RESET
CLIENT REPLY OFF
CLIENT REPLY ON
CLIENT REPLY SKIP
QUIT
NOSUCH
GET`
	transacts = `
MULTI
MULTI
EXEC
EXEC
DISCARD
WATCH k
WATCH k k
UNWATCH`
	swaps = `
SWAPDB 0 1
SWAPDB 1 0
SWAPDB 1 2
SELECT 2`
)

func forms(texts ...string) []string {
	return strings.Split(strings.TrimSpace(strings.Join(texts, "")), "\n")
}

var (
	pushForms  = forms(listens, caches, caches, reads, reads, changes, manners, transacts)
	toldForms  = forms(listens, caches, reads, manners, transacts)
	watchForms = forms(transacts, transacts, changes, swaps, reads)
)

func (h *generator) call(form string) []byte {
	var words []string
	for _, word := range strings.Fields(form) {
		switch word {
		case "k":
			word = h.pick(guestKeys)
		case "c":
			word = h.pick(channels)
		case "p":
			word = h.pick(patterns)
		case "f":
			word = h.pick([]string{"k", "ka", "kb", "x", "y"})
		case "g":
			word = fmt.Sprintf("client-%d", observer)
		case "v":
			word = h.pick([]string{"1", "7", "text"})
		case "m":
			h.message++
			word = fmt.Sprintf("m%d", h.message)
		}
		words = append(words, word)
	}
	return command(words...)
}

// allowed reports whether a client may make a call now. It leaves out calls that differ on purpose
// (docs/differences.md): in a transaction, CLIENT REPLY, messages, and a second flush. It also
// leaves out calls that cellserver executes outside the loop if nothing shows when they have ended.
func (h *generator) allowed(client int, form string) bool {
	slow := strings.Contains(form, "CHANNELS")
	switch {
	case h.queues[client] &&
		(strings.Contains(form, "PUBLISH") || strings.Contains(form, "CLIENT REPLY") || strings.Contains(form, "FLUSH") ||
			slow):
		return false
	case h.silenced[client] && (slow || form == "QUIT"): // Redis does not disconnect a silenced client after QUIT
		return false
	case form == "QUIT" && h.IntN(5) > 0:
		return false
	}
	switch form {
	case "MULTI":
		h.queues[client] = true
	case "EXEC", "DISCARD":
		h.queues[client] = false
	case "CLIENT REPLY OFF", "CLIENT REPLY SKIP":
		h.silenced[client] = true
	case "CLIENT REPLY ON":
		h.silenced[client] = false
	case "RESET":
		h.queues[client], h.silenced[client] = false, false
	}
	return true
}

func (h *generator) turn(client int, forms []string) step {
	s := step{client: client, together: true}
	for n := range 1 + h.IntN(2) {
		if n > 0 {
			forms = h.others(forms)
		}
		form := h.pick(forms)
		for !h.allowed(client, form) {
			form = h.pick(forms)
		}
		if s.bytes += string(h.call(form)); isLast(form) {
			break
		}
	}
	return s
}

// isLast reports whether no call may follow in the same step. For EXEC and BCAST, see others. COPY
// and RENAME use up cellserver's turn, so their broadcasts precede the reply to the next call.
func isLast(form string) bool {
	for _, part := range []string{"CHANNELS", "BCAST", "COPY", "RENAME"} {
		if strings.Contains(form, part) {
			return true
		}
	}
	return form == "EXEC"
}

// others returns the forms that may follow a call in the same step. Redis does not broadcast
// changes to a prefix that was registered in the same step. A broadcast may arrive before or after
// the next published message, and after an EXEC. cellserver, unlike Redis, still sends it to a
// client that sends QUIT in the same step. Two flushes are reported as one.
func (h *generator) others(forms []string) []string {
	return slices.DeleteFunc(slices.Clone(forms), func(form string) bool {
		return strings.Contains(form, "BCAST") || strings.Contains(form, "PUBLISH") || strings.Contains(form, "FLUSH") ||
			form == "QUIT"
	})
}

func newGenerator(seed, kind uint64) *generator { return &generator{author: newAuthor(seed, kind)} }

func newPushProgram(seed uint64) (p program) {
	h := newGenerator(seed, 3)
	for client := range clientCount {
		if h.IntN(3) > 0 {
			p = append(p, step{client: client, together: true, bytes: string(command("HELLO", "3"))})
		}
	}
	for range 10 + h.IntN(40) {
		if client := h.IntN(clientCount); client == observer {
			p = append(p, h.turn(client, toldForms))
		} else {
			p = append(p, h.turn(client, pushForms))
		}
	}
	return p
}

func newWatchProgram(seed uint64) (p program) {
	h := newGenerator(seed, 4)
	for range 10 + h.IntN(40) {
		p = append(p, h.turn(h.IntN(clientCount), watchForms))
	}
	return p
}

// advanceClientIDs connects and disconnects so many clients that the number of the next one cannot
// be confused with another number.
func advanceClientIDs(t *testing.T, open dialer) {
	for range 1000 {
		conn, err := open()
		require.NoError(t, err)
		_, err = conn.Write(command("QUIT"))
		require.NoError(t, err)
		_, err = io.ReadAll(conn)
		require.NoError(t, err)
		conn.Close()
	}
}

// startForSeveral starts both servers. cellserver has one event loop, as Redis has: with a goroutine
// per connection, nothing would show when a step has been executed.
func startForSeveral(t *testing.T) (ours, redis dialer) {
	ours = to(peer.Start(t, "--io-threads", "1", "--transport", string(server.DefaultTransport)))
	redis = to(peer.StartRedis(t))
	advanceClientIDs(t, ours)
	advanceClientIDs(t, redis)
	return ours, redis
}

// Several clients receive the same messages and replies from cellserver as from Redis, also those that other
// clients cause. CELLSERVER_TEST_PROGRAMS and CELLSERVER_TEST_SEED are for longer runs.
func TestRandomProgramsOfSeveralAgainstRedis(t *testing.T) {
	programs, first := uint64(100), uint64(0)
	if racetest.Enabled {
		programs = 25
	}
	if n, err := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_PROGRAMS"), 10, 64); err == nil {
		programs = n
	}
	first, _ = strconv.ParseUint(os.Getenv("CELLSERVER_TEST_SEED"), 10, 64)
	ours, redis := startForSeveral(t)
	for _, write := range []func(uint64) program{newPushProgram, newWatchProgram} {
		for _, report := range explore(t, ours, redis, func(seed uint64) program { return write(first + seed) }, programs) {
			t.Error(report)
		}
	}
}

// The test finds a server that reports another key than the changed one, and a server that executes
// transactions whose watched keys have changed.
func TestPlantedDifferencesOfSeveralAreFound(t *testing.T) {
	redis := to(peer.StartRedis(t))
	advanceClientIDs(t, redis)
	for _, planted := range []struct {
		write    func(uint64) program
		old, new string
	}{
		{newPushProgram, "$10\r\ninvalidate\r\n*1\r\n$2\r\nka\r\n", "$10\r\ninvalidate\r\n*1\r\n$2\r\nkb\r\n"},
		{newPushProgram, "$8\r\npmessage\r\n", "$8\r\nPmessage\r\n"},
		{newWatchProgram, "*-1\r\n", "*00\r\n"},
		{newStoreWatchProgram, "*-1\r\n", "*00\r\n"},
	} {
		wrong := func() (net.Conn, error) {
			conn, err := redis()
			return &tampering{conn, planted.old, planted.new}, err
		}
		assert.NotEmpty(t, explore(t, wrong, redis, planted.write, 20), "%q", planted.old)
	}
}
