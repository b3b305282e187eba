package faults

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// conn is a connection that sends calls in a pipeline.
type conn struct {
	*peer.Conn
	in *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := peer.Dial(addr)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

// encode appends a call. Its words are separated by spaces.
func encode(b *bytes.Buffer, call string) {
	words := strings.Fields(call)
	fmt.Fprintf(b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(w), w)
	}
}

// ask sends calls and returns their replies, as lines of a transcript.
func (c *conn) ask(calls ...string) (replies []string, err error) {
	var b bytes.Buffer
	for _, call := range calls {
		encode(&b, call)
	}
	if err := c.SetDeadline(time.Now().Add(3 * patience)); err != nil {
		return nil, err
	}
	if _, err := c.Write(b.Bytes()); err != nil {
		return nil, err
	}
	for range calls {
		reply, err := transcript.ReadReply(c.in)
		if err != nil {
			return replies, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// ask makes calls outside of the load.
func ask(t *testing.T, server *peer.Server, calls ...string) []string {
	t.Helper()
	c, err := dial(server.Addr)
	require.NoError(t, err)
	defer c.Close()
	replies, err := c.ask(calls...)
	require.NoError(t, err)
	return replies
}

// load is several clients that use a server, with the histories of their keys.
type load struct {
	t        *testing.T
	subjects [][]*subject // of each client
	counts   *counts
	swaps    *swaps
	awaited  *history         // of a counter; a step counts as answered when WAITAOF says that it is on the disk
	value    atomic.Int64     // the last value that a step has written
	answered atomic.Int64     // steps that have been answered since the server started
	passes   atomic.Int64     // the last count in INFO
	promise  atomic.Int64     // everything answered before this instant is on the disk
	writing  atomic.Bool      // INFO says that a snapshot is being written
	failing  atomic.Bool      // INFO says that changes cannot be written
	compacts bool             // request snapshots now and then
	pace     <-chan time.Time // limits calls of INFO, to leave most of the time to the other clients
	waitaof  bool             // use WAITAOF, which causes many passes
	gentle   bool             // make fewer calls, so that other tests can go on
	running  sync.WaitGroup
	stopping chan struct{}
}

const clients = 3

func newLoad(t *testing.T) *load {
	l := &load{t: t, counts: &counts{}, swaps: &swaps{}, compacts: true,
		pace: time.Tick(time.Millisecond)}
	for i := range clients {
		l.subjects = append(l.subjects, subjects(i))
	}
	nothing := &found{views: map[*subject]view{}, states: map[*subject][]string{}}
	for _, s := range slices.Concat(l.subjects...) {
		nothing.states[s] = s.nothing()
		nothing.views[s] = view{text: strings.Join(s.nothing(), " ")}
	}
	nothing.counts = l.counts.view(0)
	nothing.awaited = view{text: absent}
	nothing.databases = [2]view{{text: emptyDatabase}, {text: emptyDatabase}}
	l.begin(nothing)
	return l
}

// run starts the clients.
func (l *load) run(server *peer.Server) {
	l.stopping = make(chan struct{})
	l.answered.Store(0)
	l.passes.Store(0)
	l.failing.Store(false)
	l.writing.Store(false)
	work := []func(c *conn, r *rand.Rand) error{l.watch, l.swap}
	if l.waitaof {
		work = append(work, l.wait)
	}
	for i := range clients {
		work = append(work, func(c *conn, r *rand.Rand) error { return l.change(c, r, l.subjects[i]) }, l.count)
	}
	for _, f := range work {
		seed := rand.Uint64()
		l.running.Go(func() {
			c, err := dial(server.Addr)
			if err != nil {
				return // the server has ended already
			}
			defer c.Close()
			for r := rand.New(rand.NewPCG(seed, 0)); err == nil && !l.stopped(); {
				if err = f(c, r); l.gentle {
					<-l.pace
				}
			}
			var wrong wrongReply
			if errors.As(err, &wrong) {
				assert.NoError(l.t, err)
			}
		})
	}
}

func (l *load) stopped() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// end tells the clients to stop, and waits until all have ended. Some may have ended before, with their
// connections.
func (l *load) end() {
	close(l.stopping)
	l.running.Wait()
}

// wrongReply is a reply that contradicts the model.
type wrongReply struct{ call, want, reply string }

func (w wrongReply) Error() string {
	return fmt.Sprintf("%s: %s instead of %s", w.call, w.reply, w.want)
}

// isError tells an error from a negative number.
func isError(reply string) bool { return reply[0] == '-' && (reply[1] < '0' || reply[1] > '9') }

// maxPipeline is the maximum number of steps that a client sends at once.
const maxPipeline = 16

// change makes some steps on one of the subjects.
func (l *load) change(c *conn, r *rand.Rand, of []*subject) error {
	s := of[r.IntN(len(of))]
	var b bytes.Buffer
	first, state := len(s.steps), s.state
	var plans []plan
	for range 1 + r.IntN(maxPipeline) {
		p := s.next(r, int(l.value.Add(1)), state)
		state = p.after
		plans = append(plans, p)
		for _, call := range p.calls {
			encode(&b, call)
		}
	}
	if s.shows[len(s.shows)-1].database != 0 {
		encode(&b, "SELECT 0")
	}
	sent := now()
	for _, p := range plans {
		s.steps = append(s.steps, step{sent, never, p.view(sent, never), p.whole})
	}
	if _, err := c.Write(b.Bytes()); err != nil {
		return l.rest(c, s, plans, first)
	}
	if err := l.rest(c, s, plans, first); err != nil {
		return err
	}
	if s.shows[len(s.shows)-1].database != 0 {
		_, err := transcript.ReadReply(c.in)
		return err
	}
	return nil
}

// rest reads the replies to steps.
func (l *load) rest(c *conn, s *subject, plans []plan, first int) error {
	for i, p := range plans {
		for j, call := range p.calls {
			reply, err := transcript.ReadReply(c.in)
			if err != nil {
				return err
			}
			last := j == len(p.calls)-1
			if isError(reply) || last && !strings.HasPrefix(reply, p.want) {
				return wrongReply{call, p.want, reply}
			}
		}
		at := now()
		s.steps[first+i].answered = at
		s.steps[first+i].after = p.view(s.steps[first+i].sent, at)
		s.state = p.after
		l.answered.Add(1)
	}
	return nil
}

// view returns the view of a subject after a step that was sent and answered at these instants.
func (p plan) view(sent, answered time.Duration) view {
	v := view{text: strings.Join(p.after, " ")}
	if p.ttl > 0 {
		v.until = span{sent + p.ttl - clockError, min(answered, never-2*p.ttl) + p.ttl + clockError}
	}
	return v
}

// clockError is the maximum error of the journal's stamps: on a busy machine, a server may be preempted for seconds
// after it has read one clock and before it reads the other. Keys that expire do so after an hour or more.
const clockError = 10 * time.Second

// watch polls INFO for what is on the disk, and requests snapshots.
func (l *load) watch(c *conn, r *rand.Rand) error {
	asked := now()
	replies, err := c.ask("INFO persistence")
	if err != nil {
		return err
	}
	ago, err := strconv.Atoi(field(replies[0], "journal_synced_ms_ago"))
	if err != nil {
		return wrongReply{"INFO persistence", "journal_synced_ms_ago", replies[0]}
	}
	passes, _ := strconv.Atoi(field(replies[0], "journal_passes"))
	l.failing.Store(field(replies[0], "journal_failing_since") != "0")
	l.writing.Store(field(replies[0], "aof_rewrite_in_progress") == "1")
	l.passes.Store(int64(passes))
	if ago >= 0 { // the server has rounded it down
		l.promise.Store(max(l.promise.Load(), int64(asked-time.Duration(ago+1)*time.Millisecond)))
	}
	if l.compacts && r.IntN(100) == 0 {
		_, err = c.ask("BGREWRITEAOF") // an error if a snapshot is in progress
	}
	<-l.pace
	return err
}

// field returns a field of INFO.
func field(info, name string) string {
	_, rest, _ := strings.Cut(info, `\n`+name+":")
	value, _, _ := strings.Cut(rest, `\r`)
	return value
}

// wait makes a step, and waits with WAITAOF until the step is on the disk.
func (l *load) wait(c *conn, _ *rand.Rand) error {
	h := l.awaited
	n := max(number(h.steps[len(h.steps)-1].after.text), 0) + 1
	h.steps = append(h.steps, step{sent: now(), answered: never, after: view{text: strconv.Itoa(n)}})
	replies, err := c.ask("INCR "+awaitedKey, fmt.Sprint("WAITAOF 1 0 ", patience.Milliseconds()))
	if err != nil {
		return err
	}
	if replies[0] != strconv.Itoa(n) || replies[1] != "[1, 0]" {
		return wrongReply{"WAITAOF", "[1, 0]", fmt.Sprint(replies)}
	}
	h.steps[len(h.steps)-1].answered = now()
	return nil
}

const awaitedKey = "awaited"

// counts is a group of counters that all clients change together.
type counts struct {
	mu sync.Mutex
	shared
}

var countKeys = []string{"counts:a", "counts:b", "counts:c"}

func (n *counts) view(count int) view {
	text := strconv.Itoa(count)
	if count == 0 {
		text = absent
	}
	return view{text: text + " " + text + " " + text}
}

// count adds 1 to each of the counters, in a transaction.
func (l *load) count(c *conn, r *rand.Rand) error {
	calls := []string{"MULTI"}
	for _, key := range countKeys {
		calls = append(calls, "INCR "+key)
	}
	n := l.counts
	n.mu.Lock()
	n.sent++
	n.mu.Unlock()
	replies, err := c.ask(append(calls, "EXEC")...)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return wrongReply{"EXEC", "a whole reply", "a part of one"}
		}
		return err
	}
	numbers := strings.Split(strings.Trim(replies[len(replies)-1], "[]"), ", ")
	count, err := strconv.Atoi(numbers[0])
	if err != nil || len(numbers) != 3 || numbers[1] != numbers[0] || numbers[2] != numbers[0] {
		return wrongReply{"EXEC", "three equal numbers", replies[len(replies)-1]}
	}
	n.mu.Lock()
	n.answered[count] = now()
	n.mu.Unlock()
	l.answered.Add(1)
	return nil
}
