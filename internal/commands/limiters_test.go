package commands_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/racetest"
)

// The limiters of a quantity share a grammar and their semantics. So each case below is written
// once, and played to every limiter: with a limit of ten in 100 seconds, or of one every ten
// seconds for the limiter whose tokens return one by one. The limiters differ in how long a client
// has to wait, which each quantityLimiter computes.
//
//	limit 5                                   the limit from here on
//	3 -> allowed, 3 used                      the words after the limit; the reply, with what is used after it
//	8 -> limited, 3 used, waits for 8         retry_after is the time until this quantity fits; "never" is -1
//	8 UPTO -> allowed, 10 used, 7 taken
//	x -> -ERR value is not an integer or out of range: quantity
//	wait 1                                    1 is limited until its retry_after is over, and then allowed
//	advance 250s                              time passes, in which all tokens return
//
// For every call, the test also checks that PEEK predicts the reply and changes nothing, that a
// limited call changes nothing, and that quantity 0 and PTTL show how much is used.
var limiterCases = []struct{ name, lines string }{
	{"a quantity, or 1 if it is left out", `
		       -> allowed, 1 used
		3      -> allowed, 4 used
		+0003  -> allowed, 7 used
		ms     -> allowed, 8 used
		3      -> limited, 8 used, waits for 3
		2 MS   -> allowed, 10 used
		       -> limited, 10 used, waits for 1
		10 MS  -> limited, 10 used, waits for 10`},
	{"who waits is admitted", `
		8  -> allowed, 8 used
		7  -> limited, 8 used, waits for 7
		wait 7`},
	{"more than the limit can never be", `
		11                  -> limited, 0 used, never
		9223372036854775807 -> limited, 0 used, never
		4                   -> allowed, 4 used
		11                  -> limited, 4 used, never
		11 PEEK MS          -> limited, 4 used, never
		6                   -> allowed, 10 used
		11                  -> limited, 10 used, never`},
	{"0 asks, in every mode", `
		0       -> allowed, 0 used
		0 FORCE -> allowed, 0 used
		0 UPTO  -> allowed, 0 used, 0 taken
		10      -> allowed, 10 used
		-0      -> allowed, 10 used
		0 PEEK  -> allowed, 10 used
		0 FORCE -> allowed, 10 used
		0 UPTO  -> allowed, 10 used, 0 taken`},
	{"a negative quantity gives back, in every mode, and never past empty", `
		-1       -> allowed, 0 used
		-1 FORCE -> allowed, 0 used
		-1 UPTO  -> allowed, 0 used, 0 taken
		9        -> allowed, 9 used
		-1       -> allowed, 8 used
		-1 PEEK  -> allowed, 7 used
		-1 UPTO  -> allowed, 7 used, -1 taken
		-1 FORCE -> allowed, 6 used
		-7 UPTO  -> allowed, 0 used, -6 taken
		5        -> allowed, 5 used
		-9223372036854775808 PEEK -> allowed, 0 used
		-9223372036854775808      -> allowed, 0 used
		5        -> allowed, 5 used
		-9223372036854775808 upto -> allowed, 0 used, -5 taken
		5        -> allowed, 5 used
		-9223372036854775808 force ms -> allowed, 0 used`},
	{"PEEK", `
		2 PEEK  -> allowed, 2 used
		2       -> allowed, 2 used
		9 PEEK  -> limited, 2 used, waits for 9
		PEEK    -> allowed, 3 used
		8 PEEK  -> allowed, 10 used
		8       -> allowed, 10 used
		PEEK    -> limited, 10 used, waits for 1`},
	{"UPTO takes what there is", `
		3 UPTO  -> allowed, 3 used, 3 taken
		UPTO    -> allowed, 4 used, 1 taken
		11 UPTO -> allowed, 10 used, 6 taken
		11 UPTO -> limited, 10 used, waits for 1, 0 taken
		UPTO MS -> limited, 10 used, waits for 1, 0 taken
		-10     -> allowed, 0 used
		9223372036854775807 UPTO -> allowed, 10 used, 10 taken
		wait 1`},
	{"FORCE takes whether it fits or not, and a debt is waited off", `
		4 FORCE  -> allowed, 4 used
		6 FORCE  -> allowed, 10 used
		FORCE    -> limited, 11 used, waits for 1
		3 FORCE  -> limited, 14 used, waits for 1
		0        -> limited, 14 used, waits for 0
		0 FORCE  -> limited, 14 used, waits for 0
		0 UPTO   -> limited, 14 used, waits for 0, 0 taken
		1        -> limited, 14 used, waits for 1
		10       -> limited, 14 used, waits for 10
		11       -> limited, 14 used, never
		1 UPTO   -> limited, 14 used, waits for 1, 0 taken
		wait 1`},
	{"a debt: until 0 is allowed", `
		25 FORCE -> limited, 25 used, waits for 1
		wait 0`},
	{"a debt: until all of the limit is allowed", `
		11 FORCE -> limited, 11 used, waits for 1
		wait 10`},
	{"a debt is given back", `
		15 FORCE -> limited, 15 used, waits for 1
		-2       -> allowed, 13 used
		0        -> limited, 13 used, waits for 0
		-3       -> allowed, 10 used
		0        -> allowed, 10 used
		1        -> limited, 10 used, waits for 1
		-1       -> allowed, 9 used
		1        -> allowed, 10 used
		5 FORCE  -> limited, 15 used, waits for 1
		-15      -> allowed, 0 used`},
	{"a debt ends with time", `
		25 FORCE -> limited, 25 used, waits for 1
		advance 300s
		0        -> allowed, 0 used
		10       -> allowed, 10 used`},
	{"a debt that cannot be represented", `
		1 FORCE  -> allowed, 1 used
		9223372036854775807 FORCE -> -ERR quantity is too large
		9        -> allowed, 10 used`},
	{"the limit changes", `
		8        -> allowed, 8 used
		limit 5
		0        -> limited, 8 used, waits for 0
		1        -> limited, 8 used, waits for 1
		6        -> limited, 8 used, never
		-1 PEEK  -> allowed, 7 used
		-2       -> allowed, 6 used
		0        -> limited, 6 used, waits for 0
		-2       -> allowed, 4 used
		1        -> allowed, 5 used
		limit 20
		15       -> allowed, 20 used
		1 UPTO   -> limited, 20 used, waits for 1, 0 taken
		limit 1
		1        -> limited, 20 used, waits for 1
		2        -> limited, 20 used, never`},
	{"options in any order and case", `
		1 ms peek  -> allowed, 1 used
		1 Peek mS  -> allowed, 1 used
		PEEK MS    -> allowed, 1 used
		2 mS uPtO  -> allowed, 2 used, 2 taken
		2 UPTO ms  -> allowed, 4 used, 2 taken
		MS Force   -> allowed, 5 used
		1 force MS -> allowed, 6 used`},
	{"options that are none, that repeat, or that stand in a quantity's place", `
		3           -> allowed, 3 used
		1 PEEK UPTO -> -ERR syntax error at 'UPTO'
		1 UPTO FORCE -> -ERR syntax error at 'FORCE'
		1 FORCE PEEK -> -ERR syntax error at 'PEEK'
		PEEK PEEK   -> -ERR syntax error at 'PEEK'
		1 UPTO UPTO -> -ERR syntax error at 'UPTO'
		MS MS       -> -ERR syntax error at 'MS'
		MS 1        -> -ERR syntax error at '1'
		PEEK 1      -> -ERR syntax error at '1'
		1 1         -> -ERR syntax error at '1'
		1 SOON      -> -ERR syntax error at 'SOON'
		1 PEE       -> -ERR syntax error at 'PEE'
		1 MSS       -> -ERR syntax error at 'MSS'
		SOON        -> -ERR value is not an integer or out of range: quantity
		1.5         -> -ERR value is not an integer or out of range: quantity
		1e3         -> -ERR value is not an integer or out of range: quantity
		0x1         -> -ERR value is not an integer or out of range: quantity
		--1         -> -ERR value is not an integer or out of range: quantity
		+           -> -ERR value is not an integer or out of range: quantity
		9223372036854775808  -> -ERR value is not an integer or out of range: quantity
		-9223372036854775809 -> -ERR value is not an integer or out of range: quantity
		7           -> allowed, 10 used`},
	{"a limit of 0 blocks everything", `
		limit 0
		        -> blocked, 0 used
		1 MS    -> blocked, 0 used
		1 UPTO  -> blocked, 0 used, 0 taken
		1 PEEK  -> blocked, 0 used
		0       -> allowed, 0 used
		-1      -> allowed, 0 used
		2 FORCE -> limited, 2 used, never
		1       -> blocked, 2 used
		9223372036854775807 UPTO MS -> blocked, 2 used, 0 taken
		0       -> limited, 2 used, waits for 0
		-1      -> allowed, 1 used
		-5 UPTO -> allowed, 0 used, -1 taken
		2 FORCE -> limited, 2 used, never
		wait 0`},
	{"a limit that becomes 0 blocks, and does not look at what was used", `
		4       -> allowed, 4 used
		limit 0
		1 PEEK  -> blocked, 4 used
		3       -> blocked, 4 used
		0       -> limited, 4 used, waits for 0
		limit 5
		1       -> allowed, 5 used`},
}

// quantityLimiter has the properties of a limiter whose used tokens were all taken at one instant.
type quantityLimiter struct {
	name  string
	words func(limit int64) string
	reset func(used int64) time.Duration
	wait  func(limit, used, quantity int64) time.Duration
}

// limitPeriod is the length of the windows. A token of CL.THROTTLE returns in a tenth of this time.
const limitPeriod = 100 * time.Second

var quantityLimiters = []quantityLimiter{
	{
		name:  "THROTTLE",
		words: func(limit int64) string { return fmt.Sprint(limit-1, " 1 10") },
		reset: func(used int64) time.Duration { return time.Duration(used) * limitPeriod / 10 },
		wait: func(limit, used, quantity int64) time.Duration {
			return time.Duration(used+quantity-limit) * limitPeriod / 10
		},
	},
	{
		name: "FIXED", words: inPeriod,
		reset: func(int64) time.Duration { return limitPeriod },
		wait:  func(_, _, _ int64) time.Duration { return limitPeriod },
	},
	{
		name: "SLIDING", words: inPeriod,
		reset: func(int64) time.Duration { return 2 * limitPeriod },
		wait: func(limit, used, quantity int64) time.Duration { // in the next window, what was used leaves evenly
			return 2*limitPeriod - time.Duration(limit-quantity)*limitPeriod/time.Duration(used)
		},
	},
	{
		name: "SLIDINGLOG", words: inPeriod,
		reset: func(int64) time.Duration { return limitPeriod },
		wait:  func(_, _, _ int64) time.Duration { return limitPeriod },
	},
	{
		name: "QUOTA", words: inPeriod, // one of its periods begins with each case, and after 300 s
		reset: func(int64) time.Duration { return limitPeriod },
		wait:  func(_, _, _ int64) time.Duration { return limitPeriod },
	},
}

func inPeriod(limit int64) string { return fmt.Sprint(limit, " 100") }

// sendFunc sends a call to a server, and returns the reply.
type sendFunc func(words []string) string

// Every case is played to every limiter: to its own command, and as the only limiter of a CL.ALL.
func TestLimitersShareSemantics(t *testing.T) {
	for _, l := range quantityLimiters {
		for _, form := range []limiterForm{byItself, insideAll} {
			for _, c := range limiterCases {
				t.Run(l.name+form.String()+"/"+c.name, func(t *testing.T) {
					for _, d := range playLimiter(t, l, form, c.lines, nil) {
						t.Error(d)
					}
				})
			}
		}
	}
}

type limiterForm bool

const (
	byItself  limiterForm = false
	insideAll limiterForm = true
)

func (f limiterForm) String() string {
	if f == insideAll {
		return " in CL.ALL"
	}
	return ""
}

// limiterCase is a case that is being played.
type limiterCase struct {
	quantityLimiter
	form   limiterForm
	send   sendFunc
	clock  func(time.Duration)
	limit  int64
	stored int64 // how much is used, according to the replies so far
	wrong  []string
}

// playLimiter returns the differences between the expected and the actual replies. A fault changes
// what passes between the case and the server.
func playLimiter(t *testing.T, l quantityLimiter, form limiterForm, lines string,
	fault func(words []string, say sendFunc) string) []string {
	server := commandstest.New(t)
	client := server.Connect()
	c := &limiterCase{quantityLimiter: l, form: form, limit: 10, clock: func(d time.Duration) { server.Clock.Advance(d) }}
	c.send = func(words []string) string {
		require.NoError(t, client.Send(commandstest.Encode(words)))
		reply, err := client.Receive(0)
		require.NoError(t, err)
		return reply
	}
	if fault != nil {
		sound := c.send
		c.send = func(words []string) string { return fault(words, sound) }
	}
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		before := len(c.wrong)
		c.play(t, strings.TrimSpace(line))
		for i := range c.wrong[before:] {
			c.wrong[before+i] = fmt.Sprintf("%s: %s", strings.TrimSpace(line), c.wrong[before+i])
		}
	}
	return c.wrong
}

var limiterLine = regexp.MustCompile(`^(.*?) *-> (?:(allowed|limited|blocked), (\d+) used(?:, (never)|, waits for (\d+))?(?:, (-?\d+) taken)?|(-ERR .*))$`)

func (c *limiterCase) play(t *testing.T, line string) {
	if directive, argument, _ := strings.Cut(line, " "); directive == "limit" || directive == "wait" ||
		directive == "advance" {
		c.perform(t, directive, argument)
		return
	}
	m := limiterLine.FindStringSubmatch(line)
	require.NotNil(t, m, line)
	options := strings.Fields(m[1])
	if m[7] != "" {
		before := c.inspect()
		c.compare("the error", m[7], c.send(c.call(options)))
		c.compare("what an error leaves", before, c.inspect())
		return
	}
	e := expectedReply{
		limited: m[2] != "allowed", blocked: m[2] == "blocked", used: number(t, m[3]), never: m[4] != "" || m[2] != "limited",
		taken: m[6],
	}
	if !e.never {
		e.wanted = number(t, m[5])
	}
	mode := modeOf(options)
	before := c.inspect()
	if mode == "" || mode == "FORCE" && c.form == insideAll {
		c.compare("PEEK, before", c.expected(e, options), c.ask(append(slices.Clone(options), "PEEK")))
		c.compare("what PEEK leaves", before, c.inspect())
	}
	c.compare("the reply", c.expected(e, options), c.ask(options))
	if mode == "PEEK" || e.limited && mode != "FORCE" {
		c.compare("what a refusal leaves", before, c.inspect())
	} else {
		c.stored = e.used
	}
	c.checkStored()
}

// perform executes a line that is not a call.
func (c *limiterCase) perform(t *testing.T, directive, argument string) {
	switch directive {
	case "limit":
		c.limit = number(t, argument)
	case "advance":
		d, err := time.ParseDuration(argument)
		require.NoError(t, err)
		c.clock(d)
		c.stored = 0
		c.checkStored()
	case "wait":
		fields := strings.Split(strings.Trim(c.send(c.call([]string{argument, "PEEK", "MS"})), "[]"), ", ")
		if len(fields) != 5 || fields[0] != "1" {
			c.wrong = append(c.wrong, "is not limited: "+strings.Join(fields, ", "))
			return
		}
		c.clock(time.Duration(number(t, fields[3])-1) * time.Millisecond)
		c.compare("a ms before its time", "[1", c.ask([]string{argument})[:2])
		c.clock(time.Millisecond)
		c.compare("when its time has come", "[0", c.ask([]string{argument})[:2])
	}
}

// checkStored checks how much is used, with calls that take nothing.
func (c *limiterCase) checkStored() {
	e := expectedReply{limited: c.stored > c.limit, used: c.stored, never: c.stored <= c.limit}
	options := []string{"0", "MS"}
	c.compare("0, after", c.expected(e, options), c.ask(options))
	left := "-2"
	if c.stored > 0 {
		left = inUnits(c.reset(c.stored), time.Millisecond)
	}
	c.compare("PTTL, after", left, c.send([]string{"PTTL", "key"}))
}

func (c *limiterCase) inspect() string { return c.send([]string{"CL.INSPECT", "key"}) }

func (c *limiterCase) compare(what, want, got string) {
	if got != want {
		c.wrong = append(c.wrong, fmt.Sprintf("%s:\n\twant %s\n\tgot  %s", what, want, got))
	}
}

func (c *limiterCase) call(options []string) []string {
	return append(strings.Fields("CL."+c.name+" key "+c.words(c.limit)), options...)
}

// ask makes a call. CL.ALL has no UPTO, so calls with it are made on the limiter's own command.
func (c *limiterCase) ask(options []string) string {
	mode := modeOf(options)
	if c.form == byItself || mode == "UPTO" {
		return c.send(c.call(options))
	}
	quantity := "1"
	if len(options) > 0 && !slices.Contains([]string{"PEEK", "MS", "FORCE"}, strings.ToUpper(options[0])) {
		quantity, options = options[0], options[1:]
	}
	words := strings.Fields("CL.ALL 1 " + c.name + " key " + c.words(c.limit) + " " + quantity)
	for i, o := range options {
		if strings.EqualFold(o, "FORCE") {
			words, options = append(words, o), slices.Delete(slices.Clone(options), i, i+1)
			break
		}
	}
	return innerReply(c.send(append(words, options...)), mode == "FORCE")
}

// innerReply returns the reply of the only limiter in a reply of CL.ALL, if the two agree. A forced
// quantity never limits.
func innerReply(all string, forced bool) string {
	around, inside, found := strings.Cut(all, ", [")
	five := strings.Split(inside, ", ")
	if !found || len(five) != 5 || !forced && around != "["+five[0]+", "+five[3] || forced && around != "[0, -1" {
		return "of CL.ALL: " + all
	}
	return "[" + strings.TrimSuffix(inside, "]")
}

// expectedReply is the reply that a line describes.
type expectedReply struct {
	limited, never, blocked bool // a blocked call does not show the state of the key
	used, wanted            int64
	taken                   string
}

func (c *limiterCase) expected(e expectedReply, options []string) string {
	unit := time.Second
	if slices.ContainsFunc(options, func(o string) bool { return strings.EqualFold(o, "MS") }) {
		unit = time.Millisecond
	}
	limited, retry, reset := 0, "-1", "0"
	if e.limited {
		limited = 1
	}
	if !e.never {
		retry = inUnits(c.wait(c.limit, e.used, e.wanted), unit)
	}
	if e.used > 0 && !e.blocked {
		reset = inUnits(c.reset(e.used), unit)
	}
	reply := fmt.Sprintf("[%d, %d, %d, %s, %s", limited, c.limit, max(0, c.limit-e.used), retry, reset)
	if e.taken != "" {
		reply += ", " + e.taken
	}
	return reply + "]"
}

// inUnits converts a duration, rounding up, so that no client retries too early.
func inUnits(d, unit time.Duration) string { return fmt.Sprint(int64((d + unit - 1) / unit)) }

// modeOf returns the mode among a call's options, in capitals.
func modeOf(options []string) string {
	for _, o := range options {
		if mode := strings.ToUpper(o); mode == "PEEK" || mode == "UPTO" || mode == "FORCE" {
			return mode
		}
	}
	return ""
}

func number(t *testing.T, digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	require.NoError(t, err)
	return n
}

// faultyServer stands between a case and the server, and gets one thing wrong.
type faultyServer func(words []string, say sendFunc) string

// The cases of every limiter must find limiterFaults, and the cases of CL.ALL must find allFaults.
var (
	limiterFaults = map[string]faultyServer{
		"PEEK takes":                       replaceWord("PEEK", ""),
		"UPTO is all or nothing":           replaceWord("UPTO", ""),
		"FORCE is refused":                 replaceWord("FORCE", ""),
		"FORCE takes what there is":        replaceWord("FORCE", "UPTO"),
		"UPTO takes all":                   replaceWord("UPTO", "FORCE"),
		"MS is in seconds":                 replaceWord("MS", ""),
		"0 takes 1":                        replaceWord("0", "1"),
		"-1 takes 1":                       replaceWord("-1", "1"),
		"-2^63 gives nothing back":         replaceWord("-9223372036854775808", "0"),
		"quantity left out is 0":           replaceDefault("0"),
		"more than the limit is the limit": replaceWord("11", "10"),
		"a refused call takes":             callIf("[1", "FORCE"),
		"an error resets the key":          callIf("-", "DEL"),
		"limit is one too many":            changeReply(1, func(n int64) int64 { return n + 1 }),
		"remaining is never 0":             changeReply(2, func(n int64) int64 { return max(n, 1) }),
		"remaining is one too few":         changeReply(2, func(n int64) int64 { return n - 1 }),
		"never is 10 seconds":              changeReply(3, func(n int64) int64 { return max(n, 10) }),
		"retry_after is one short":         changeReply(3, func(n int64) int64 { return max(n-1, -1) }),
		"retry_after is one long":          changeReply(3, func(n int64) int64 { return n + min(n+1, 1) }),
		"reset_after is one short":         changeReply(4, func(n int64) int64 { return max(n-1, 0) }),
		"an unused key has a reset_after":  changeReply(4, func(n int64) int64 { return max(n, 1) }),
		"taken is what was asked for":      takenAsAsked,
		"taken is always said": func(words []string, say sendFunc) string {
			reply := say(words)
			if isLimitCall(words) && strings.Count(reply, ",") == 4 {
				return strings.TrimSuffix(reply, "]") + ", 1]"
			}
			return reply
		},
		"small letters are no option": func(words []string, say sendFunc) string {
			if isLimitCall(words) && slices.Contains(words, "peek") {
				return "-ERR syntax error"
			}
			return say(words)
		},
		"the key is gone too soon": func(words []string, say sendFunc) string {
			if words[0] == "PTTL" {
				return "-2"
			}
			return say(words)
		},
	}
	allFaults = map[string]faultyServer{
		"PEEK takes":           replaceWord("PEEK", ""),
		"MS is in seconds":     replaceWord("MS", ""),
		"0 takes 1":            replaceWord("0", "1"),
		"FORCE is refused":     replaceWord("FORCE", ""),
		"a refused call takes": callIf("[1", "FORCE"),
		"what is forced limits": func(words []string, say sendFunc) string {
			return strings.Replace(say(words), "[0, -1, [1", "[1, -1, [1", 1)
		},
		"what is allowed is taken twice": func(words []string, say sendFunc) string {
			reply := say(words)
			if words[0] == "CL.ALL" && strings.HasPrefix(reply, "[0") {
				say(words)
			}
			return reply
		},
		"nothing is ever limited": func(words []string, say sendFunc) string {
			reply := say(words)
			if words[0] == "CL.ALL" {
				return strings.Replace(reply, "[1", "[0", 1)
			}
			return reply
		},
		"the wait is that of nobody": func(words []string, say sendFunc) string {
			reply := say(words)
			if fields := strings.SplitN(reply, ", ", 3); words[0] == "CL.ALL" && len(fields) == 3 {
				return fields[0] + ", -1, " + fields[2]
			}
			return reply
		},
	}
)

func TestLimiterCasesFindFaults(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for _, l := range quantityLimiters {
		for form, faults := range map[limiterForm]map[string]faultyServer{byItself: limiterFaults, insideAll: allFaults} {
			for name, fault := range faults {
				t.Run(l.name+form.String()+"/"+name, func(t *testing.T) {
					require.True(t, slices.ContainsFunc(limiterCases, func(c struct{ name, lines string }) bool {
						return len(playLimiter(t, l, form, c.lines, fault)) > 0
					}), "the fault went unseen")
				})
			}
		}
	}
}

// isLimitCall reports whether a call is one of a limiter.
func isLimitCall(words []string) bool {
	return strings.HasPrefix(words[0], "CL.") && words[0] != "CL.INSPECT"
}

// limitEnds returns the index of the first word after the limit.
func limitEnds(words []string) int {
	name, at := strings.TrimPrefix(words[0], "CL."), 2
	if name == "ALL" {
		name, at = words[2], 4
	}
	i := slices.IndexFunc(quantityLimiters, func(l quantityLimiter) bool { return l.name == name })
	return at + len(strings.Fields(quantityLimiters[i].words(1)))
}

// replaceWord replaces a word by another, or removes it if other is empty.
func replaceWord(word, other string) faultyServer {
	return func(words []string, say sendFunc) string {
		words = slices.Clone(words)
		for i := len(words) - 1; isLimitCall(words) && i >= limitEnds(words); i-- {
			switch {
			case !strings.EqualFold(words[i], word):
			case other == "":
				words = slices.Delete(words, i, i+1)
			default:
				words[i] = other
			}
		}
		return say(words)
	}
}

// replaceDefault makes a default other than 1 for the quantity.
func replaceDefault(quantity string) faultyServer {
	return func(words []string, say sendFunc) string {
		if isLimitCall(words) {
			at := limitEnds(words)
			if at == len(words) || modeOf(words[at:at+1]) != "" || strings.EqualFold(words[at], "MS") {
				words = slices.Insert(slices.Clone(words), at, quantity)
			}
		}
		return say(words)
	}
}

// callIf makes a call on the key after a reply that begins with begins.
func callIf(begins, what string) faultyServer {
	return func(words []string, say sendFunc) string {
		reply := say(words)
		if !isLimitCall(words) || !strings.HasPrefix(reply, begins) {
			return reply
		}
		switch {
		case what == "DEL":
			say([]string{"DEL", "key"})
		case words[0] == "CL.ALL":
			at := limitEnds(words)
			say(append([]string{"CL." + words[2]}, append(slices.Clone(words[3:at]), "1", what)...))
		default:
			say(append(slices.Clone(words[:limitEnds(words)]), "1", what))
		}
		return reply
	}
}

// changeReply changes one of the five integers.
func changeReply(position int, change func(n int64) int64) faultyServer {
	return func(words []string, say sendFunc) string {
		reply := say(words)
		fields := strings.Split(strings.Trim(reply, "[]"), ", ")
		if !isLimitCall(words) || len(fields) < 5 {
			return reply
		}
		n, err := strconv.ParseInt(fields[position], 10, 64)
		if err != nil {
			return reply
		}
		fields[position] = fmt.Sprint(change(n))
		return "[" + strings.Join(fields, ", ") + "]"
	}
}

func takenAsAsked(words []string, say sendFunc) string {
	reply := say(words)
	fields := strings.Split(strings.Trim(reply, "[]"), ", ")
	if !isLimitCall(words) || len(fields) != 6 {
		return reply
	}
	fields[5] = words[limitEnds(words)]
	return "[" + strings.Join(fields, ", ") + "]"
}

// Every limiter refuses a key of another kind, in every mode, alone and in CL.ALL, and does not
// change it.
func TestLimitersRefuseKeysOfOtherKinds(t *testing.T) {
	const wrongType = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	for _, held := range quantityLimiters {
		client := commandstest.New(t).Connect()
		client.Do(t, "CL."+held.name+" key "+held.words(10)+" 3")
		before := client.Do(t, "CL.INSPECT key")
		for _, l := range quantityLimiters {
			if l.name == held.name {
				continue
			}
			for _, options := range []string{"", "0", "-1", "1 PEEK", "1 UPTO", "1 FORCE", "-9223372036854775808", "11"} {
				require.Equal(t, wrongType, client.Do(t, "CL."+l.name+" key "+l.words(10)+" "+options), "%s on %s", l.name,
					held.name)
			}
			all := "CL.ALL 2 " + l.name + " other " + l.words(10) + " 1 " + l.name + " key " + l.words(10) + " 1"
			require.Equal(t, wrongType, client.Do(t, all))
		}
		for _, call := range []string{"CL.ACQUIRE key 1 1 me", "CL.RENEW key 1 me", "CL.RELEASE key me", "CL.HOLDERS key"} {
			require.Equal(t, wrongType, client.Do(t, call))
		}
		require.Equal(t, before, client.Do(t, "CL.INSPECT key"))
		require.Equal(t, ":0\r\n", client.Do(t, "EXISTS other"))
	}
}
