//go:build !race

package commands_test

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
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/commands/connection"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/session"
	"cellserver/internal/session/sessiontest"
	"cellserver/test/generated"
)

// The worst call of each row, and what it costs an event loop. Work is counted, not timed: function
// calls and loop iterations (in the packages that test/worst compiles with counters), bytes that
// are hashed or compared, bytes that are allocated, and bytes of replies.

// worst is the most expensive call of a row: with the largest arguments that the bounds allow, and
// with the keys or clients that make it most expensive.
type worst struct {
	row       string
	stage     string   // the state of the server before: a key of stages, or empty
	call      string   // see expandWords
	where     location // where the call is made
	exemption string   // why a turn may exceed turnWork, and what bounds it; empty if it may not
}

// location is where a call is made.
type location string

const (
	onLoop  location = "loop"
	offLoop location = "outside the loop"
	refused location = "refused"
)

// turnWork is the counted work that a turn of an event loop may take: about half a millisecond.
const turnWork = 150_000

// missingField returns the name of a field that an entry lacks; "" if there is none.
func (w *worst) missingField() string {
	switch {
	case w.call == "":
		return "call"
	case w.where == "":
		return "where"
	case w.stage != "" && stages[w.stage].prepare == nil:
		return "stage " + w.stage
	}
	return ""
}

// missingEntries returns the rows without a worst call, and the fields that are missing in entries.
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
	require.Empty(t, missingEntries(commandstest.AllRows(), allWorstCalls(commandstest.AllRows())))
}

// allWorstCalls returns worstCalls, and the worst calls that follow from the grammar of other
// commands.
func allWorstCalls(rows []*command.Command) []worst {
	all := slices.Clone(worstCalls)
	for _, row := range rows {
		if !slices.ContainsFunc(worstCalls, func(w worst) bool { return w.row == row.Name }) {
			all = append(all, derivedWorst(row)...)
		}
	}
	return all
}

// derivedWorst returns the worst calls of a command that takes one key and nothing else: with the
// largest value, and with the longest key. For other commands it returns nothing.
func derivedWorst(row *command.Command) []worst {
	least, most := row.Words()
	if first, last, _ := row.KeyPositions(); row.Run == nil || least != 2 || most != 2 || first != 1 || last != 1 {
		return nil
	}
	where := onLoop
	if row.Cost == command.Unbounded {
		where = offLoop
	}
	return []worst{
		{row: row.Name, stage: "value", call: row.Upper() + " v", where: where},
		{row: row.Name, call: row.Upper() + " {64K}", where: where},
	}
}

// The worst calls of a command with one key need not be stated.
func TestWorstCallsAreDerived(t *testing.T) {
	require.Equal(t, []worst{
		{row: "strlen", stage: "value", call: "STRLEN v", where: onLoop},
		{row: "strlen", call: "STRLEN {64K}", where: onLoop},
	}, derivedWorst(commandstest.Find(commands.All(), "strlen")))
	require.Empty(t, derivedWorst(commandstest.Find(commands.All(), "incrby")))
	require.Empty(t, derivedWorst(commandstest.Find(commands.All(), "touch")))
}

func TestMissingEntryIsFound(t *testing.T) {
	row := &command.Command{Name: "planted", Run: func(*command.Call) error { return nil }}
	require.Equal(t, []string{
		"planted: no worst call is stated (worstCalls, in worst_calls_test.go)",
		"get: call is missing", "get: where is missing", "get: stage nowhere is missing",
	}, missingEntries([]*command.Command{row, commandstest.Find(commands.All(), "get")},
		[]worst{{row: "get", where: onLoop}, {row: "get", call: "GET k"},
			{row: "get", stage: "nowhere", call: "GET k", where: onLoop}}))
}

// steps returns the count of test/worst's counters; 0 without them.
var (
	steps      = func() int64 { return 0 }
	stepsCount bool
)

// countBy sets steps. A file that test/worst adds to this package calls it.
//
//lint:ignore U1000 it is called by that file
func countBy(count func() int64) bool {
	steps, stepsCount = count, true
	return true
}

// work is the work of a turn.
type work struct {
	steps, allocated, written int64
	took                      time.Duration // CPU time of the thread, to be printed
}

// total returns the work in steps: a function call or a loop iteration takes about as long as
// allocating or writing 64 bytes.
func (w work) total() int64 { return w.steps + w.allocated/64 + w.written/64 }

// measurement measures the turns of a client, and keeps the most expensive one.
type measurement struct {
	*commandstest.Server
	c          *sessiontest.Client
	most       work
	turns      int
	blocked    chan struct{} // the row gate receives from it
	background bool          // a call was made outside the event loop
	refused    bool
}

// newMeasurement returns a server in which nothing runs outside the event loop while a turn is
// measured: background calls run between two turns.
func newMeasurement(t *testing.T, rows ...*command.Command) *measurement {
	w := &measurement{Server: commandstest.New(t), blocked: make(chan struct{})}
	gate := &command.Command{
		Name: "gate", Cost: command.Unbounded,
		Run: func(c *command.Call) error {
			<-w.blocked
			c.Out.Status("OK")
			return nil
		},
	}
	w.AddRows(append(rows, gate)...)
	return w
}

func (w *measurement) hold() {
	for range background.MaxSlots() {
		w.Instance.Background.Acquire(context.Background())
	}
}

func (w *measurement) release() {
	for range background.MaxSlots() {
		w.Instance.Background.Release()
	}
}

// turn measures a turn of the client.
func (w *measurement) turn(turn func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, from := threadTime(), steps()
	turn()
	one := work{steps: steps() - from, took: threadTime() - began}
	runtime.ReadMemStats(&after)
	out := w.c.Session.Output()
	w.refused = w.refused || len(out) > 0 && out[0] == '-'
	one.allocated, one.written = int64(after.TotalAlloc-before.TotalAlloc), int64(len(out))
	w.c.Session.Sent()
	w.turns++
	longest := max(w.most.took, one.took)
	if one.total() > w.most.total() {
		w.most = one
	}
	w.most.took = longest
}

// manyTurns bounds the turns that are measured, because further turns are like the earlier ones.
const manyTurns = 64

// settle resumes the client until all of its calls are answered.
func (w *measurement) settle() {
	s := w.c.Session
	for w.turns < manyTurns && (s.HasUnanswered() || s.HasMail() || s.PieceBytes() > 0 || len(s.Output()) > 0) {
		if s.State() != client.Running && !s.HasMail() {
			if s.State() > client.Parked {
				return
			}
			w.background = true
			w.release()
			<-w.c.Woken
			w.hold()
		}
		w.turn(s.Resume)
	}
}

// feed sends bytes in pieces, as an event loop reads them.
func (w *measurement) feed(input []byte) {
	for piece := range slices.Chunk(input, 16<<10) {
		w.turns = 0
		w.turn(func() { w.c.Session.Feed(piece) })
	}
	w.settle()
}

// sendTogether sends bytes that have all arrived before the first of their calls is answered.
func (w *measurement) sendTogether(input []byte) {
	w.c.Session.Feed([]byte("GATE\r\n"))
	for piece := range slices.Chunk(input, 16<<10) {
		w.c.Session.Feed(piece)
	}
	w.release()
	w.blocked <- struct{}{}
	<-w.c.Woken
	w.hold()
	w.turns = 0
	w.turn(w.c.Session.Resume)
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
	callForms = []callForm{alone, piped, inEXEC}
)

// maxTransactionCalls returns how many times a transaction may have a call if it is executed in a
// turn.
func (w *measurement) maxTransactionCalls(words []string) int {
	split := make([][]byte, len(words))
	for i, word := range words {
		split[i] = []byte(word)
	}
	row := w.Instance.Table.Find(split)
	if row == nil || !row.Grammar.Fits(len(split)) {
		return transaction.MaxQueuedWords // each call is refused when it is queued
	}
	in, q := w.Instance, new(transaction.Queue)
	q.Add(row, split, command.TotalLength(split), in.Limits.Load().Bulk)
	call := command.Call{Context: context.Background(), View: in.Store.View(), Server: &in.Server,
		Client: w.c.Session.Client}
	most := in.MaxTurnTransaction
	if q.NeedsSession {
		most = session.MaxSessionWork
	}
	return max(1, most/(q.Work+q.WorkOfValues(&call, 0, most)))
}

// pipelined returns how many calls are sent at once: as much input as may be unread, but not so
// much that the test takes long.
func pipelined(call []byte) int { return max(1, min(512, (15<<20)/len(call))) }

var wordPattern = regexp.MustCompile(`(\{(\d+)([KM])(#?)\}|\{[^}]*payload[^}]*\}|[^*()\s]+)(?:\*(\d+))?|\(([^)]*)\)\*(\d+)`)

// expandWords returns the words of a call: {all} is *, {64K} is a word of so many bytes, {64K#} is
// a different one each time; x# is x1 the first time, then x2; x*3 is x x x, and (a b)*2 is a b a b.
// Payloads are those of payloadNamed.
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
				word := commandstest.PayloadNamed(strings.ReplaceAll(m[1], "{all}", "*"))
				if m[2] != "" {
					size, _ := strconv.Atoi(m[2])
					word = strings.Repeat("k", size<<map[string]int{"K": 10, "M": 20}[m[3]])
					if number++; m[4] != "" {
						word = word[8:] + fmt.Sprintf("%08d", number)
					}
				} else if name, numbered := strings.CutSuffix(word, "#"); numbered {
					number++
					word = fmt.Sprint(name, number)
				}
				words = append(words, word)
			}
		}
	}
	one(call)
	return words
}

// measured is the work of an entry in each form.
type measured struct {
	worst
	forms      []callForm
	most       []work
	background bool
	refused    bool // the first reply was an error
}

func measureOne(t *testing.T, entry worst, rows ...*command.Command) (r measured) {
	return measure(t, callForms, entry, (*commandstest.Server).Connect, rows...)
}

// measure plays an entry in several forms, each with a new server and client.
func measure(t *testing.T, ways []callForm, entry worst, dial func(*commandstest.Server) *sessiontest.Client,
	rows ...*command.Command) (r measured) {
	runtime.LockOSThread() // whose CPU time is measured
	defer runtime.UnlockOSThread()
	r.worst, r.forms = entry, ways
	words := expandWords(entry.call)
	call := commandstest.Encode(words)
	for i, way := range ways {
		w := newMeasurement(t, rows...)
		if entry.stage != "" {
			stages[entry.stage].prepare(w.Server)
		}
		w.c = dial(w.Server)
		w.hold()
		way.play(w, call, words)
		r.most = append(r.most, w.most)
		if i == 0 {
			r.background, r.refused = w.background, w.refused
		}
		w.release()
		w.Instance.UnblockAll()
		w.c.Session.Close()
	}
	return r
}

// observed returns where the call was made.
func (r *measured) observed() location {
	switch {
	case r.refused:
		return refused
	case r.background:
		return offLoop
	}
	return onLoop
}

// violations returns how an entry's calls differ from the entry, or exceed a turn's work.
func (r *measured) violations() (violations []string) {
	for i, way := range r.forms {
		if total := r.most[i].total(); total > turnWork && r.exemption == "" {
			violations = append(violations,
				fmt.Sprintf("%s, %s: a turn is %d steps' work, and %d is what one may be (%+v)", r.call,
					way.name, total, turnWork, r.most[i]))
		}
	}
	if place := r.observed(); place != r.where {
		violations = append(violations, fmt.Sprintf("%s is made: %s; it is stated: %s", r.call, place, r.where))
	}
	return violations
}

var onlyWorst = flag.String("worst", "", "measure the worst calls of the rows that match")

// TestWorstCalls requires that no call takes more than a turn's work. With -v it prints the CPU
// time of the longest turns.
func TestWorstCalls(t *testing.T) {
	if !stepsCount {
		return // go test ./test/worst runs this test with counters
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // background goroutines wait for the end of the turn
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	chosen := regexp.MustCompile(*onlyWorst)
	check := func(entries []worst, measure func(*testing.T, worst, ...*command.Command) measured) {
		for _, entry := range entries {
			if chosen.MatchString(entry.row) {
				t.Run(entry.row, func(t *testing.T) { // the end of a subtest frees the memory of its servers
					r := measure(t, entry)
					r.print(t)
					require.Empty(t, r.violations())
				})
			}
		}
	}
	check(allWorstCalls(commandstest.AllRows()), measureOne)
	check(unauthenticatedCalls, measureUnauthenticated)
}

// print prints the work of the most expensive turn of each form, and the CPU time of the longest.
func (r *measured) print(t *testing.T) {
	out := fmt.Sprintf("%-24s %-60.60s", r.row, r.call)
	for _, one := range r.most {
		out += fmt.Sprintf(" %8d %v", one.total(), one.took)
	}
	t.Log(out, r.observed())
}

// measureUnauthenticated is measureOne for a client that has not logged in. The input of such a
// client is bounded, so a pipeline is served in turns of a few calls too.
func measureUnauthenticated(t *testing.T, entry worst, rows ...*command.Command) (r measured) {
	flood := callForm{"pipelined", func(w *measurement, call []byte, _ []string) {
		w.feed(slices.Repeat(call, max(1, 2*session.MaxUnauthenticatedInput/len(call))))
	}}
	return measure(t, []callForm{alone, flood}, entry, func(s *commandstest.Server) *sessiontest.Client {
		admin := s.Connect()
		for i := range 40 { // a user may have so many passwords
			_ = admin.Send([]byte("ACL SETUSER default resetpass\r\n"))
			_ = admin.Send([]byte(fmt.Sprintf("ACL SETUSER default%s\r\n", numbered(fmt.Sprintf(" >secret%d-%%d", i), 100))))
		}
		return s.Connect()
	}, rows...)
}

// A row that is answered before AUTH also states its worst call there.
func TestEveryRowBeforeAUTHStatesItsWorstCall(t *testing.T) {
	for _, row := range commandstest.AllRows() {
		stated := slices.ContainsFunc(unauthenticatedCalls, func(w worst) bool { return w.row == row.Name })
		require.Equal(t, row.Flags&command.NoAuth != 0 && row.Run != nil, stated && row.Flags&command.NoAuth != 0, row.Name)
	}
	for _, w := range unauthenticatedCalls {
		require.Empty(t, w.missingField())
	}
}

// A row that takes more than a turn's work in any form is found.
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
	planted.where = offLoop
	require.Equal(t, []string{"PLANTED is made: loop; it is stated: outside the loop"},
		violationsOf(measureOne(t, planted, row)))
	require.Empty(t, violationsOf(measureOne(t, worst{row: "ping", call: "PING", where: onLoop})))
}

func violationsOf(r measured) []string { return r.violations() }

// The table in docs/assurance.md is generated from the worst calls.
func TestWorstCallsAreDocumented(t *testing.T) {
	const path, begins, ends = "../../docs/assurance.md", "<!-- worst calls -->\n", "<!-- end of worst calls -->"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found)
	_, after, found := strings.Cut(rest, ends)
	require.True(t, found)
	generated.Check(t, path, before+begins+worstTable()+ends+after, *rewrite)
}

func worstTable() string {
	var out strings.Builder
	out.WriteString("\n| command | largest call | with | where it runs | why a turn may be longer |\n|---|---|---|---|---|\n")
	line := func(w worst, of string) {
		fmt.Fprintf(&out, "| %s | `%.60s` | %s | %s | %s |\n", strings.ReplaceAll(w.row, "|", " "), w.call, of, w.where,
			w.exemption)
	}
	for _, w := range allWorstCalls(commandstest.AllRows()) {
		line(w, stages[w.stage].what)
	}
	for _, w := range unauthenticatedCalls {
		line(w, "before AUTH, with 4,000 passwords")
	}
	out.WriteString("\n")
	return out.String()
}
