package differential

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// In these programs there are few keys, with integers, fractions and other strings. Some expire. Times are chosen
// so that a few milliseconds make no difference in replies.

// valueForms are calls in addition to the forms of grammar: k is a key, i an integer, f a fraction,
// w a word, s a duration in seconds, m in milliseconds, t an instant in seconds, u in milliseconds;
// =X the word X. A form in capitals is a name.
var valueForms = strings.Split(strings.TrimSpace(`
INCR k
DECR k
INCRBY k i
DECRBY k i
INCRBYFLOAT k f
APPEND k v
STRLEN k
GET k
GET k
GETDEL k
GETSET k v
GETEX k
GETEX k EX s
GETEX k PERSIST
GETEX k EXAT t
GETEX k w s
SET k v
SET k v
SET k v o
SET k v o o
SET k v EX s
SET k v EX s o
SET k v o EX s o
SET k v EXAT t
SET k v PX m
SET k v PXAT u o
SET k v w
SET k v w w
SETNX k v
SETEX k s v
PSETEX k m v
MGET k k k
MSET k v k v
MSET k v k
MSETNX k v k v
GETRANGE k r r
SUBSTR k r r
SETRANGE k r v
EXISTS k k
DEL k
DEL k k
UNLINK k
TYPE k
TOUCH k k
RENAME k k
RENAMENX k k
COPY k k
COPY k k REPLACE
COPY k k DB d
COPY k k DB d REPLACE
COPY k k w
MOVE k d
SELECT d
SWAPDB d d
EXPIRE k s
EXPIRE k s c
EXPIRE k s c c
EXPIREAT k t
EXPIREAT k t c
PEXPIREAT k u c
PEXPIRE k m c
TTL k
PERSIST k
FLUSHDB
KEYS nosuch*
WATCH k
WATCH k k
UNWATCH
MULTI
MULTI
EXEC
EXEC
EXEC
DISCARD
`), "\n")

var (
	valueKeys = []string{"a", "b", "c", "d"}
	values    = []string{
		"", "0", "1", "10", "-1", "007", "+1", " 1", "1 ", "abc", "3.0", "1.5", "-0.25", "1e3", "9223372036854775807",
		"-9223372036854775808",
		"9223372036854775806", "inf", "nan", "\xff", "hello world", strings.Repeat("x", 70), strings.Repeat("y", 1000),
		"0x10", "-0", "0.1",
	}
	fractions = []string{
		"0", "1", "0.1", "0.2", "-0.3", "1.5", "1e3", "1e-3", "5.0e3", "-200", "3.14159265358979323846", "1e18", "1e17",
		"123456789012345678",
		"inf", "-inf", "+inf", "infinity", "nan", "", "abc", "1x", " 1", "1 ", ".5", "5.", ".", "1e", "0x1p4", "0x.8",
		"1e400", "1e-400", "1e4000",
		"1e5000", "-1e4931", "1e-4940", "1e-20", "0.00000000000000001", "0.000000000000000004", "1_0", "0b1", "0o7", "--1",
		"1e+2", "99999999999999999999",
	}
	spans = []string{"100", "1000", "500", "100000", "0", "-1", "abc", "", "9223372036854775807", "9223372036854775",
		"9223372036854776", "1.5", "+1"}
	instants = []string{"4102444800", "4102444801", "1", "0", "-1", "abc", "9223372036854775807", "9000000000"}
	// Not later than 2262, the last year that an instant of cellserver can have.
	millis        = []string{"100000", "1000000", "500000", "0", "-1", "abc", "", "9223372036854775807", "1.5"}
	milliInstants = []string{"4102444800000", "4102444801500", "1", "0", "-1", "abc", "9000000000000"}
	ranges        = []string{"0", "1", "-1", "2", "-3", "5", "100", "-100", "9223372036854775807", "-9223372036854775808",
		"abc", "1048576", "600"}
	numbers  = []string{"0", "1", "2", "15", "16", "-1", "abc", "0", "1"}
	settings = []string{"NX", "XX", "GET", "KEEPTTL", "nx", "xx", "get", "keepttl", "PERSIST", "EX"}
	when     = []string{"NX", "XX", "GT", "LT", "nx", "gt", "foo"}
)

func newValueProgram(seed uint64) program { return newAuthor(seed, 1).valueProgram() }

func (a *author) valueProgram() (p program) {
	if a.IntN(2) == 0 {
		p = append(p, step{bytes: string(command("HELLO", "3"))})
	}
	p = append(p, step{bytes: string(command("FLUSHALL"))})
	for range 5 + a.IntN(60) {
		p = append(p, step{bytes: string(command(a.valueCall()...))})
	}
	return p
}

// valueCall returns a call that the author may write.
func (a *author) valueCall() []string {
	call := a.anyValueCall()
	for a.avoids != nil && a.avoids(call) {
		call = a.anyValueCall()
	}
	return call
}

func (a *author) anyValueCall() (call []string) {
	for i, form := range strings.Fields(a.pick(valueForms)) {
		from := map[string][]string{"k": valueKeys, "v": values, "i": integers, "f": fractions, "s": spans, "t": instants,
			"r": ranges, "m": millis, "u": milliInstants,
			"d": numbers, "o": settings, "c": when}[form]
		switch {
		case i == 0:
			call = append(call, a.cased(form))
		case form == "w":
			call = append(call, a.word())
		case form == "s":
			call = append(call, a.span(from, 1))
		case form == "m":
			call = append(call, a.span(from, 1000))
		case from != nil:
			call = append(call, a.pick(from))
		default:
			call = append(call, form)
		}
	}
	if a.IntN(40) == 0 {
		call = append(call, a.pick(values))
	}
	return call
}

// span returns a duration that differs from every other by at least a second. With equal durations,
// the milliseconds between two calls would decide which expiry EXPIRE GT takes for the later one.
func (a *author) span(from []string, second int) string {
	text := a.pick(from)
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 || n > 1_000_000 {
		return text
	}
	a.spans++
	return strconv.Itoa(n + a.spans*second)
}

// Random programs of values and transactions get the same replies. CELLSERVER_TEST_PROGRAMS=100000
// makes the run longer, and CELLSERVER_TEST_SEED changes the programs.
func TestRandomValueProgramsAgainstRedis(t *testing.T) {
	programs := uint64(1500)
	if racetest.Enabled {
		programs = 300
	}
	if n, err := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_PROGRAMS"), 10, 64); err == nil {
		programs = n
	}
	first, _ := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_SEED"), 10, 64)
	reports := explore(t, to(peer.Start(t)), to(peer.StartRedis(t, "--proto-max-bulk-len", "1mb")),
		func(seed uint64) program { return newValueProgram(first + seed) }, programs)
	for _, report := range reports {
		t.Error(report)
	}
}
