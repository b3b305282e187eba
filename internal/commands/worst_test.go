//go:build !race

package commands

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/background"
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/session"
)

// The worst call of each row, and what it costs an event loop. Work is counted, not timed: calls of
// functions and rounds of loops (which test/worst has the compiler count), bytes that are hashed or
// compared, memory that is asked for, and bytes of replies.

// worst is a call of a row with the largest arguments that the bounds allow, on what makes it most
// expensive.
type worst struct {
	row   string
	of    string // what there is beforehand, see stages; "" for nothing
	call  string // in words, see spell
	where where  // the call is made
	why   string // a turn of it may be more than a turn's work, and what bounds it
}

// where a call is made.
type where string

const (
	onLoop  where = "loop"
	beside  where = "outside the loop"
	refused where = "refused"
)

// turnWork is the counted work that a turn of an event loop may be: about half a millisecond.
const turnWork = 150_000

// missingField says which field of an entry is missing, "" if none is.
func (w *worst) missingField() string {
	switch {
	case w.call == "":
		return "call"
	case w.where == "":
		return "where"
	case w.of != "" && stages[w.of].prepare == nil:
		return "stage " + w.of
	}
	return ""
}

// missingEntries is the rows without a worst call, and the fields that entries lack.
func missingEntries(rows []*command.Command, entries []worst) (missing []string) {
	for _, row := range rows {
		if row.Run != nil && !slices.ContainsFunc(entries, func(w worst) bool { return w.row == row.Name }) {
			missing = append(missing, row.Name+": no worst call is stated (worstCalls, in worst_calls_test.go)")
		}
	}
	for _, w := range entries {
		if field := w.missingField(); field != "" {
			missing = append(missing, w.row+": "+field+" is missing")
		}
	}
	return missing
}

func TestEveryRowStatesItsWorstCall(t *testing.T) {
	require.Empty(t, missingEntries(allRows(), worstCalls))
}

func TestMissingEntryIsFound(t *testing.T) {
	row := &command.Command{Name: "planted", Run: func(*command.Call) error { return nil }}
	require.Equal(t, []string{
		"planted: no worst call is stated (worstCalls, in worst_calls_test.go)",
		"get: call is missing", "get: where is missing", "get: stage nowhere is missing",
	}, missingEntries([]*command.Command{row, find(All(), "get")},
		[]worst{{row: "get", where: onLoop}, {row: "get", call: "GET k"},
			{row: "get", of: "nowhere", call: "GET k", where: onLoop}}))
}

// steps is what test/worst has the compiler count; 0 without it.
var (
	steps      = func() int64 { return 0 }
	stepsCount bool
)

// countBy is what the file calls that test/worst adds.
//
//lint:ignore U1000 it calls it
func countBy(count func() int64) bool {
	steps, stepsCount = count, true
	return true
}

// work is what a turn has cost.
type work struct {
	steps, allocated, written int64
	took                      time.Duration // CPU time of the thread, to be printed
}

// total is in steps: a function called, or a loop gone round, takes as long as some 64 bytes that
// are asked for or written.
func (w work) total() int64 { return w.steps + w.allocated/64 + w.written/64 }

// measurement plays a client, and keeps the most that one of its turns has cost.
type measurement struct {
	*testServer
	c          *testClient
	most       work
	turns      int
	blocked    chan struct{} // what the row gate waits for
	background bool          // something was made beside the loop
	refused    bool
}

// newMeasurement is an instance in which nothing runs beside the loop while a turn is measured: that
// is let in between two turns.
func newMeasurement(t *testing.T, rows ...*command.Command) *measurement {
	w := &measurement{testServer: newServer(t), blocked: make(chan struct{})}
	gate := &command.Command{
		Name: "gate", Cost: command.Unbounded,
		Run: func(c *command.Call) error {
			<-w.blocked
			c.Out.Status("OK")
			return nil
		},
	}
	w.addRows(append(rows, gate)...)
	return w
}

func (w *measurement) hold() {
	for range background.MaxSlots() {
		w.instance.Background.Acquire(context.Background())
	}
}

func (w *measurement) release() {
	for range background.MaxSlots() {
		w.instance.Background.Release()
	}
}

// turn measures a turn of the client's.
func (w *measurement) turn(turn func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, from := threadTime(), steps()
	turn()
	one := work{steps: steps() - from, took: threadTime() - began}
	runtime.ReadMemStats(&after)
	out := w.c.session.Output()
	w.refused = w.refused || len(out) > 0 && out[0] == '-'
	one.allocated, one.written = int64(after.TotalAlloc-before.TotalAlloc), int64(len(out))
	w.c.session.Sent()
	w.turns++
	longest := max(w.most.took, one.took)
	if one.total() > w.most.total() {
		w.most = one
	}
	w.most.took = longest
}

// manyTurns are measured at most: what follows is like them.
const manyTurns = 64

// settle has the client go on until nothing is owed to it.
func (w *measurement) settle() {
	s := w.c.session
	for w.turns < manyTurns && (s.HasUnanswered() || s.HasMail() || s.PieceBytes() > 0 || len(s.Output()) > 0) {
		if s.Parked.Load() && !s.HasMail() {
			if s.Blocked.Load() {
				return
			}
			w.background = true
			w.release()
			<-w.c.woken
			w.hold()
		}
		w.turn(s.Resume)
	}
}

// feed sends bytes as a loop reads them.
func (w *measurement) feed(input []byte) {
	for piece := range slices.Chunk(input, 16<<10) {
		w.turns = 0
		w.turn(func() { w.c.session.Feed(piece) })
	}
	w.settle()
}

// sendTogether sends bytes that are all there before the first call of them is answered.
func (w *measurement) sendTogether(input []byte) {
	w.c.session.Feed([]byte("GATE\r\n"))
	for piece := range slices.Chunk(input, 16<<10) {
		w.c.session.Feed(piece)
	}
	w.release()
	w.blocked <- struct{}{}
	<-w.c.woken
	w.hold()
	w.turns = 0
	w.turn(w.c.session.Resume)
	w.settle()
}

// callForm is how a call is sent.
type callForm struct {
	name string
	play func(w *measurement, call []byte, words []string)
}

var (
	alone = callForm{"alone", func(w *measurement, call []byte, _ []string) { w.feed(call) }}
	piped = callForm{"pipelined", func(w *measurement, call []byte, _ []string) {
		w.sendTogether(slices.Repeat(call, pipelined(call)))
	}}
	inEXEC = callForm{"in EXEC", func(w *measurement, call []byte, words []string) {
		queued := slices.Repeat(call,
			min(w.maxTransactionCalls(words), pipelined(call), transaction.MaxQueuedWords/len(words)))
		w.sendTogether(slices.Concat([]byte("MULTI\r\n"), queued, []byte("EXEC\r\n")))
	}}
	ways = []callForm{alone, piped, inEXEC}
)

// maxTransactionCalls is how many of a call a transaction may have that the event loop makes: more are
// made beside it.
func (w *measurement) maxTransactionCalls(words []string) int {
	split := make([][]byte, len(words))
	for i, word := range words {
		split[i] = []byte(word)
	}
	row := w.instance.Table.Find(split)
	if row == nil || !row.Grammar.Fits(len(split)) {
		return transaction.MaxQueuedWords // they are refused, each
	}
	in, q := w.instance, new(transaction.Queue)
	q.Add(row, split, command.TotalLength(split), in.Limits.Load().Bulk)
	call := command.Call{Context: context.Background(), View: in.Store.View(), Server: &in.Server,
		Client: w.c.session.Client}
	most := in.MaxTurnTransaction
	if q.NeedsSession {
		most = session.MaxSessionCost
	}
	return max(1, most/(q.Cost+q.CostOfValues(&call, 0, most)))
}

// pipelined is how many calls are sent at once: what a connection may have unread, but no more than
// make the test last.
func pipelined(call []byte) int { return max(1, min(512, (15<<20)/len(call))) }

var wordPattern = regexp.MustCompile(`(\{(\d+)([KM])(#?)\}|[^*()\s]+)(?:\*(\d+))?|\(([^)]*)\)\*(\d+)`)

// expandWords makes a call's words: {all} is *, {64K} is a word of so many bytes, {64K#} another one each
// time; x*3 is x x x, and (a b)*2 is a b a b.
func expandWords(call string) (words []string) {
	number := 0
	var one func(text string)
	one = func(text string) {
		for _, m := range wordPattern.FindAllStringSubmatch(text, -1) {
			if m[7] != "" {
				times, _ := strconv.Atoi(m[7])
				for range times {
					one(m[6])
				}
				continue
			}
			times := 1
			if m[5] != "" {
				times, _ = strconv.Atoi(m[5])
			}
			for range times {
				word := strings.ReplaceAll(m[1], "{all}", "*")
				if m[2] != "" {
					size, _ := strconv.Atoi(m[2])
					word = strings.Repeat("k", size<<map[string]int{"K": 10, "M": 20}[m[3]])
					if number++; m[4] != "" {
						word = word[8:] + fmt.Sprintf("%08d", number)
					}
				}
				words = append(words, word)
			}
		}
	}
	one(call)
	return words
}

// measured is what an entry costs in each way.
type measured struct {
	worst
	ways    []callForm
	most    []work
	aside   bool
	refused bool // that it was refused
}

func measureOne(t *testing.T, entry worst, rows ...*command.Command) (r measured) {
	return measure(t, ways, entry, (*testServer).dial, rows...)
}

// measure plays an entry in some ways, each by a client of its own.
func measure(t *testing.T, ways []callForm, entry worst, dial func(*testServer) *testClient,
	rows ...*command.Command) (r measured) {
	r.worst, r.ways = entry, ways
	words := expandWords(entry.call)
	call := encode(words)
	for i, way := range ways {
		w := newMeasurement(t, rows...)
		if entry.of != "" {
			stages[entry.of].prepare(w.testServer)
		}
		w.c = dial(w.testServer)
		w.hold()
		way.play(w, call, words)
		r.most = append(r.most, w.most)
		if i == 0 {
			r.aside, r.refused = w.background, w.refused
		}
		w.release()
		w.instance.UnblockAll()
		w.c.session.Close()
	}
	return r
}

// observed is where the call was made, as it was seen.
func (r *measured) observed() where {
	switch {
	case r.refused:
		return refused
	case r.aside:
		return beside
	}
	return onLoop
}

// violations says what of an entry is not as it is stated, "" if all is.
func (r *measured) violations() (said []string) {
	for i, way := range r.ways {
		if total := r.most[i].total(); total > turnWork && r.why == "" {
			said = append(said, fmt.Sprintf("%s, %s: a turn is %d steps' work, and %d is what one may be (%+v)", r.call,
				way.name, total, turnWork, r.most[i]))
		}
	}
	if place := r.observed(); place != r.where {
		said = append(said, fmt.Sprintf("%s is made: %s; it is stated: %s", r.call, place, r.where))
	}
	return said
}

var onlyWorst = flag.String("worst", "", "weigh the worst calls of the rows that match")

// TestWorstCalls holds every row to a turn's work. With -v it prints the CPU time of the longest
// turns.
func TestWorstCalls(t *testing.T) {
	if !stepsCount {
		return // go test ./test/worst has it count
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what runs beside the loop waits for the end of the turn
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	chosen := regexp.MustCompile(*onlyWorst)
	var said []string
	for _, entry := range worstCalls {
		if chosen.MatchString(entry.row) {
			r := measureOne(t, entry)
			said = append(said, r.violations()...)
			r.print(t)
		}
	}
	for _, entry := range unauthenticatedCalls {
		if chosen.MatchString(entry.row) {
			r := measureUnauthenticated(t, entry)
			said = append(said, r.violations()...)
			r.print(t)
		}
	}
	require.Empty(t, said)
}

// print prints the work of the longest turn in each way, and the CPU time of the longest.
func (r *measured) print(t *testing.T) {
	out := fmt.Sprintf("%-24s %-60.60s", r.row, r.call)
	for _, one := range r.most {
		out += fmt.Sprintf(" %8d %v", one.total(), one.took)
	}
	t.Log(out, r.observed())
}

// measureUnauthenticated is weighOne for a client that has not logged in. Its calls wait while it may
// not send more than a few: so it is served in turns of few calls, pipelined too.
func measureUnauthenticated(t *testing.T, entry worst, rows ...*command.Command) (r measured) {
	flood := callForm{"pipelined", func(w *measurement, call []byte, _ []string) {
		w.feed(slices.Repeat(call, max(1, 2*session.MaxUnauthenticatedInput/len(call))))
	}}
	return measure(t, []callForm{alone, flood}, entry, func(s *testServer) *testClient {
		admin := s.dial()
		for i := range 40 { // as many passwords as a user may have
			_ = admin.Send([]byte("ACL SETUSER default resetpass\r\n"))
			_ = admin.Send([]byte(fmt.Sprintf("ACL SETUSER default%s\r\n", numbered(fmt.Sprintf(" >secret%d-%%d", i), 100))))
		}
		return s.dial()
	}, rows...)
}

// A row that is answered before AUTH states its worst call there, too.
func TestEveryRowBeforeAUTHStatesItsWorstCall(t *testing.T) {
	for _, row := range allRows() {
		stated := slices.ContainsFunc(unauthenticatedCalls, func(w worst) bool { return w.row == row.Name })
		require.Equal(t, row.Flags&command.NoAuth != 0 && row.Run != nil, stated && row.Flags&command.NoAuth != 0, row.Name)
	}
	for _, w := range unauthenticatedCalls {
		require.Empty(t, w.missingField())
	}
}

// A row that does more than a turn's work is found, in whichever way it does.
func TestExpensiveRowIsFound(t *testing.T) {
	kept := []byte(nil)
	when := func(*command.Call) bool { return true }
	row := &command.Command{
		Name: "planted", Flags: command.Fast | command.NoAuth, Cost: command.Constant,
		Run: func(c *command.Call) error {
			if when(c) {
				kept = make([]byte, 16<<20)
			}
			c.Out.Int(int64(len(kept)))
			return nil
		},
	}
	planted := worst{row: "planted", call: "PLANTED", where: onLoop}
	require.Len(t, violationsOf(measureOne(t, planted, row)), 3, "alone, pipelined, in EXEC")
	require.Len(t, violationsOf(measureUnauthenticated(t, planted, row)), 2)
	when = func(c *command.Call) bool { return c.InTransaction }
	require.Contains(t, violationsOf(measureOne(t, planted, row))[0], "PLANTED, in EXEC: ")
	when = func(c *command.Call) bool { return !c.Session.(connection.Session).IsLoggedIn() }
	require.Empty(t, violationsOf(measureOne(t, planted, row)))
	require.Contains(t, violationsOf(measureUnauthenticated(t, planted, row))[0], "PLANTED, alone: ")
	planted.where = beside
	require.Equal(t, []string{"PLANTED is made: loop; it is stated: outside the loop"},
		violationsOf(measureOne(t, planted, row)))
	require.Empty(t, violationsOf(measureOne(t, worst{row: "ping", call: "PING", where: onLoop})))
}

func violationsOf(r measured) []string { return r.violations() }

// The table of docs/assurance.md is worstCalls.
func TestWorstCallsAreDocumented(t *testing.T) {
	const path, begins, ends = "../../docs/assurance.md", "<!-- worst calls -->\n", "<!-- end of worst calls -->"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found)
	_, after, found := strings.Cut(rest, ends)
	require.True(t, found)
	want := before + begins + worstTable() + ends + after
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "make rewrite brings it up to date")
}

func worstTable() string {
	var out strings.Builder
	out.WriteString("\n| row | largest call | on | made | more than a turn's work |\n|---|---|---|---|---|\n")
	line := func(w worst, of string) {
		fmt.Fprintf(&out, "| %s | `%.60s` | %s | %s | %s |\n", strings.ReplaceAll(w.row, "|", " "), w.call, of, w.where,
			w.why)
	}
	for _, w := range worstCalls {
		line(w, stages[w.of].what)
	}
	for _, w := range unauthenticatedCalls {
		line(w, "before AUTH, with 4,000 passwords")
	}
	out.WriteString("\n")
	return out.String()
}
