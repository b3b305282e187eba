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

	"cellserver/internal/server"
	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// Programs of several clients, one of which has its turn at a time: who publishes and who listens,
// who caches and who changes, who watches. What each client hears is compared as a whole, in its
// order; who of two hears first is not.

// guests is how many clients there are.
const guests = 4

// guest is one of the clients, as it is played.
type guest struct {
	conn  net.Conn
	heard chan string // closed when the server has hung up
	lines []string
	gone  bool
}

func (g *guest) listen() {
	defer close(g.heard)
	for r := bufio.NewReader(g.conn); ; {
		line, err := transcript.ReadReply(r)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
			g.heard <- "closed"
			return
		case err != nil:
			g.heard <- "error: " + err.Error()
			return
		}
		g.heard <- line
	}
}

// late is when something that was waited for does not come: on a busy machine it may take a while.
const late = 10 * time.Second

// take takes what has been heard until there are so many lines, or the last, or it takes too long.
// With few it takes what is there.
func (g *guest) take(until int, last string, patience time.Duration) {
	over := time.After(patience)
	for {
		if len(g.lines) >= until && last == "" {
			over = nil // no waiting
		}
		var line string
		var more bool
		if over == nil {
			select {
			case line, more = <-g.heard:
			default:
				return
			}
		} else {
			select {
			case line, more = <-g.heard:
			case <-over:
				return
			}
		}
		if !more {
			g.gone = true
			return
		}
		if g.lines = append(g.lines, line); line == last && last != "" {
			return
		}
	}
}

// company is clients of one server, and one more that takes no part.
type company struct {
	late    bool // something that was waited for did not come
	guests  []*guest
	ids     []string
	other   net.Conn
	replies *bufio.Reader
}

func (c *company) leave() {
	for _, g := range c.guests {
		g.conn.Close()
		for range g.heard { // until it has noticed
		}
	}
	c.other.Close()
}

func gather(open dialer) (*company, error) {
	other, err := open()
	if err != nil {
		return nil, err
	}
	c := &company{other: other, replies: bufio.NewReader(other)}
	for _, call := range []string{"FLUSHALL",
		"CLIENT TRACKING ON"} { // so that there is always somebody who caches: else ours forgets what was read
		if _, err := c.ask(strings.Fields(call)...); err != nil {
			return c, err
		}
	}
	for range guests {
		conn, err := open()
		if err != nil {
			return c, err
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return c, err
		}
		if _, err := conn.Write(command("CLIENT", "ID")); err != nil {
			return c, err
		}
		g := &guest{conn: conn, heard: make(chan string, 1<<12)}
		go g.listen()
		c.guests = append(c.guests, g)
		c.ids = append(c.ids, <-g.heard)
	}
	return c, nil
}

func (c *company) ask(words ...string) (string, error) {
	if _, err := c.other.Write(command(words...)); err != nil {
		return "", err
	}
	return transcript.ReadReply(c.replies)
}

// turn has a guest say something, and returns when it has been done: a server looks at everybody
// who has said something before it looks at somebody again, so that the other one's second PING
// comes after it. (What ours does beside its loop may come still later: then pace says what is to
// be waited for.)
func (c *company) turn(s step, pace []int) ([]int, error) {
	g := c.guests[s.client]
	if g.gone {
		return pace, nil
	}
	text := s.bytes
	for i, id := range c.ids {
		number := "client-" + strconv.Itoa(i)
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d\r\n%s\r\n", len(number), number),
			fmt.Sprintf("$%d\r\n%s\r\n", len(id), id))
	}
	if _, err := g.conn.Write([]byte(text)); err != nil && !errors.Is(err, syscall.EPIPE) &&
		!errors.Is(err, syscall.ECONNRESET) {
		return nil, err
	}
	for range 2 {
		if _, err := c.ask("PING"); err != nil {
			return nil, err
		}
	}
	counts := make([]int, guests)
	for i, g := range c.guests {
		until := 0
		if pace != nil && !c.late {
			until = pace[i]
		}
		g.take(until, "", late)
		counts[i] = len(g.lines)
		c.late = c.late || counts[i] < until
	}
	return counts, nil
}

// playTogether plays a program, and returns what each guest has heard, and how many lines each had
// heard after each turn. With a pace it waits until each has heard as many.
func playTogether(open dialer, p program, pace [][]int) (heard [][]string, counts [][]int, err error) {
	c, err := gather(open)
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
		count, err := c.turn(s, until)
		if err != nil {
			return nil, nil, fmt.Errorf("turn %d: %w", i, err)
		}
		counts = append(counts, count)
	}
	last := `"` + finished + `"`
	for i, g := range c.guests {
		if !g.gone {
			_, _ = g.conn.Write(append(command("RESET"), command("ECHO", finished)...)) // who is gone says so
			g.take(0, last, late)
		}
		heard = append(heard, c.plain(i))
	}
	return heard, counts, nil
}

var (
	ended     = regexp.MustCompile(`^(push)?\["(p|s)?unsubscribe", (.*), (\d+)\]$`)
	byPattern = regexp.MustCompile(`^(?:push)?\["pmessage", ".*", (".*", ".*")\]$`)
	nameList  = regexp.MustCompile(`^\[("[\w:]+"(, "[\w:]+")*)\]$`)
)

// plain is what a guest has heard, without what may differ: the numbers of clients, and orders that
// nobody has promised. Those are of the channels that UNSUBSCRIBE ends without a name, of the
// patterns by which one message comes, and of the names that PUBSUB CHANNELS lists.
func (c *company) plain(i int) []string {
	lines := slices.Clone(c.guests[i].lines)
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

// sortRuns sorts neighbours of one kind; "" is none.
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

// sortEnds sorts the names of subscriptions that ended one after the other, but not the numbers of
// those that are left.
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

// compareTogether plays a program of several clients to both.
func compareTogether(ours, redis dialer, p program) (difference string, err error) {
	want, pace, err := playTogether(redis, p, nil)
	if err != nil {
		return "", fmt.Errorf("redis-server: %w", err)
	}
	got, _, err := playTogether(ours, p, pace)
	if err != nil {
		return "", fmt.Errorf("cellserver: %w", err)
	}
	for i := range guests {
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

// host writes programs of several clients. It knows of each what it may not say next.
type host struct {
	*author
	hushed  [guests]bool // it may want no replies
	queues  [guests]bool // it may be in a transaction
	message int
}

var (
	guestKeys = strings.Fields("k ka kb x")
	channels  = strings.Fields("news nets n")
	patterns  = strings.Fields("n* ne[wt]s * x?")
)

// toldOnly is the client that others have told in their place. It changes nothing itself: what that
// means for others Redis tells it before the reply, and in the middle of a transaction's.
const toldOnly = guests - 1

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

func (h *host) call(form string) []byte {
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
			word = fmt.Sprintf("client-%d", toldOnly)
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

// allowed says whether a client may say it now. What differs on purpose is left out
// (docs/differences.md): CLIENT REPLY and messages in a transaction, and two flushes in one; and
// what ours does beside the loop, where nothing says when it is done.
func (h *host) allowed(client int, form string) bool {
	slow := strings.Contains(form, "CHANNELS")
	switch {
	case h.queues[client] &&
		(strings.Contains(form, "PUBLISH") || strings.Contains(form, "CLIENT REPLY") || strings.Contains(form, "FLUSH") ||
			slow):
		return false
	case h.hushed[client] && (slow || form == "QUIT"): // which Redis does not hang up on then
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
		h.hushed[client] = true
	case "CLIENT REPLY ON":
		h.hushed[client] = false
	case "RESET":
		h.queues[client], h.hushed[client] = false, false
	}
	return true
}

func (h *host) turn(client int, forms []string) step {
	s := step{client: client, together: true}
	for n := range 1 + h.IntN(2) {
		if n > 0 {
			forms = h.others(forms)
		}
		form := h.pick(forms)
		for !h.allowed(client, form) {
			form = h.pick(forms)
		}
		if s.bytes += string(h.call(form)); strings.Contains(form, "CHANNELS") || strings.Contains(form, "BCAST") ||
			form == "EXEC" {
			break
		}
	}
	return s
}

// others are the forms that may follow a call in one turn. A prefix that is broadcast from now on
// is not one yet, to Redis, for what the same turn has changed; what was broadcast before may come
// before or after what is published next, and after an EXEC, and is still sent here to who says
// QUIT in the same breath; and two flushes are told as one.
func (h *host) others(forms []string) []string {
	return slices.DeleteFunc(slices.Clone(forms), func(form string) bool {
		return strings.Contains(form, "BCAST") || strings.Contains(form, "PUBLISH") || strings.Contains(form, "FLUSH") ||
			form == "QUIT"
	})
}

func newHost(seed, kind uint64) *host { return &host{author: newAuthor(seed, kind)} }

func newPushProgram(seed uint64) (p program) {
	h := newHost(seed, 3)
	for client := range guests {
		if h.IntN(3) > 0 {
			p = append(p, step{client: client, together: true, bytes: string(command("HELLO", "3"))})
		}
	}
	for range 10 + h.IntN(40) {
		if client := h.IntN(guests); client == toldOnly {
			p = append(p, h.turn(client, toldForms))
		} else {
			p = append(p, h.turn(client, pushForms))
		}
	}
	return p
}

func newWatchProgram(seed uint64) (p program) {
	h := newHost(seed, 4)
	for range 10 + h.IntN(40) {
		p = append(p, h.turn(h.IntN(guests), watchForms))
	}
	return p
}

// strangers has so many clients come and go, so that the number of the next is not mistaken for
// anything else.
func strangers(t *testing.T, open dialer) {
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

// What several clients hear of one another is what they hear from Redis. CELLSERVER_TEST_PROGRAMS
// and CELLSERVER_TEST_SEED are for more.
func TestRandomProgramsOfSeveralAgainstRedis(t *testing.T) {
	programs, first := uint64(100), uint64(0)
	if peer.Race {
		programs = 25
	}
	if n, err := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_PROGRAMS"), 10, 64); err == nil {
		programs = n
	}
	first, _ = strconv.ParseUint(os.Getenv("CELLSERVER_TEST_SEED"), 10, 64)
	// One loop, as Redis has: where each connection has a goroutine, nobody can tell when a turn is
	// over.
	ours, redis := to(peer.Start(t, "--io-threads", "1", "--transport", string(server.DefaultTransport))),
		to(peer.StartRedis(t))
	strangers(t, ours)
	strangers(t, redis)
	for _, write := range []func(uint64) program{newPushProgram, newWatchProgram} {
		for _, report := range explore(t, ours, redis, func(seed uint64) program { return write(first + seed) }, programs) {
			t.Error(report)
		}
	}
}

// A server that tells of another key than the one that changed is found out, and so is one whose
// transactions go through.
func TestProgramsOfSeveralFindPlantedDifferences(t *testing.T) {
	redis := to(peer.StartRedis(t))
	strangers(t, redis)
	for _, planted := range []struct {
		write    func(uint64) program
		old, new string
	}{
		{newPushProgram, "$10\r\ninvalidate\r\n*1\r\n$2\r\nka\r\n", "$10\r\ninvalidate\r\n*1\r\n$2\r\nkb\r\n"},
		{newPushProgram, "$8\r\npmessage\r\n", "$8\r\nPmessage\r\n"},
		{newWatchProgram, "*-1\r\n", "*00\r\n"},
	} {
		wrong := func() (net.Conn, error) {
			conn, err := redis()
			return &tampered{conn, planted.old, planted.new}, err
		}
		assert.NotEmpty(t, explore(t, wrong, redis, planted.write, 20), "%q", planted.old)
	}
}
