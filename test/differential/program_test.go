package differential

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// program is what one client sends, or what several clients send in turn.
type program []step

// step is a call, or bytes that may not be a valid call. ends means that the server disconnects
// after the step; afterExpiry, that the next step waits until all keys with a short time to live
// have expired; together, that the step belongs to one client of a program with several clients.
type step struct {
	bytes       string
	ends        bool
	afterExpiry bool
	together    bool
	client      int
}

// pieces divides a program into the parts that are sent at once.
func (p program) pieces() (all []program) {
	for {
		last := slices.IndexFunc(p, func(s step) bool { return s.afterExpiry })
		if last < 0 {
			return append(all, p)
		}
		all, p = append(all, p[:last+1]), p[last+1:]
	}
}

func (p program) String() string {
	var b strings.Builder
	for _, s := range p {
		if len(s.bytes) > 600 {
			fmt.Fprintf(&b, "raw %.300q... of %d bytes\n", s.bytes, len(s.bytes))
			continue
		}
		if s.together {
			fmt.Fprintf(&b, "%c ", 'A'+s.client)
		}
		fmt.Fprintf(&b, "raw %q\n", s.bytes)
	}
	return b.String()
}

func (p program) bytes() []byte {
	var b strings.Builder
	for _, s := range p {
		b.WriteString(s.bytes)
	}
	return []byte(b.String())
}

func (p program) ends() bool {
	for _, s := range p {
		if s.ends {
			return true
		}
	}
	return false
}

// author writes programs. It does not know values: both servers are empty, and stay empty.
type author struct {
	*rand.Rand
	spans  int                      // how many spans of time it has written
	avoids func(call []string) bool // whether a call must not be written; nil if any may
}

func newAuthor(seed, kind uint64) *author { return &author{Rand: rand.New(rand.NewPCG(seed, kind))} }

func newProgram(seed uint64) (p program) {
	a := newAuthor(seed, 0)
	if a.IntN(2) == 0 {
		p = append(p, step{bytes: string(command("HELLO", "3"))})
	}
	for range 1 + a.IntN(60) {
		p = append(p, a.step())
	}
	if a.IntN(3) > 0 {
		return p
	}
	if a.IntN(20) == 0 {
		// Nothing may follow this step: the server would not read what follows, and might reset the
		// connection.
		return append(p, step{bytes: a.pick(tooLong), ends: true})
	}
	p = append(p, step{bytes: a.pick(endings), ends: true})
	for range a.IntN(3) {
		p = append(p, step{bytes: string(command("ECHO", "unheard"))})
	}
	return p
}

func (a *author) pick(from []string) string { return from[a.IntN(len(from))] }

func (a *author) step() step {
	switch a.IntN(12) {
	case 0:
		return step{bytes: a.pick(oddities)}
	case 1:
		return step{bytes: a.inline()}
	}
	return step{bytes: string(command(a.call()...))}
}

var (
	integers = []string{
		"0", "1", "2", "3", "15", "16", "-1", "-0", "+1", "01", " 1", "1 ", "", "x", "1.5", "0x1", "1e3", "2147483647",
		"2147483648",
		"-2147483649", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
		"-9223372036854775809", "18446744073709551615", "18446744073709551616", "99999999999999999999999",
	}
	words = []string{
		"", "a", "b", "k:1", "a b", "A", "'", "\"", "\\", "%s%n", "\r\n", "a\r\nb", "\xff\xfe", "é", "{tag}x", "*", "[a-",
		"\\",
		"a?[^b]*", "default", "get", "GET", "ON", "NX", "SYNC", "ASYNC", "MATCH", "COUNT", "TYPE", "ID", "AUTH", "SETNAME",
		strings.Repeat("x", 127), strings.Repeat("y", 128), strings.Repeat("z", 256), "-ERR", "+OK", "$5", "*1", "~", "!",
		"a-b", "a~b", "a\tb",
	}
	names = []string{
		"NOSUCH", "nosuch", "", " ", "get ", "PINGG", "PIN", "get\r\n", "\xff", "cl", "client|id", "config|get", "|", "a|b",
		strings.Repeat("n", 127), strings.Repeat("n", 129), strings.Repeat("N", 500), "%s", "'", "+PING", "-", "0",
		"sentinel",
	}
	// oddities are invalid or unusual calls after which the connection stays open. Zero bytes are
	// only in arguments: Redis searches for the ends of lines with strchr, which stops at a zero
	// byte, and would wait for ever.
	oddities = []string{
		"\r\n", "\n", "  \r\n", "\t\n", "*0\r\n", "*-1\r\n", "*-10\r\n", "*1\r\n$4\r\nPINGxx",
		"*2\r\n$4\r\nECHO\r\n$3\r\nabcde\r\n",
		"*1\r\n$0\r\n\r\n", "*2\r\n$0\r\n\r\n$1\r\na\r\n", "PING\n", "PING\r\n", "ping   \t  a\r\n", "  PING\r\n",
		"ECHO \"\"\r\n", "ECHO ''\r\n",
		"ECHO \"\\x00\\xff\\n\\r\\t\\a\\b\\q\\\"\"\r\n", "ECHO 'it\\'s\\n'\r\n", "ECHO a\"b c\"\r\n", "\"PING\"\r\n",
		"PING\r\r\n",
		"ECHO \"\\xg1\"\r\n", "ECHO \"\\x1\"\r\n", "$4\r\n", "+PING\r\n", "GET / HTTP/1.1\r\n", "'' a\r\n", "\v\fPING\r\n",
		"PING\va\r\n",
	}
	// endings are invalid calls after which the server disconnects.
	endings = []string{
		"*x\r\n", "*+1\r\n", "*01\r\n", "* 1\r\n", "*\r\n", "*1 \r\n", "*1x\r\n", "*--1\r\n", "*2147483648\r\n",
		"*99999999999999999999\r\n",
		"*1\r\nPING\r\n", "*1\r\n\r\n", "*1\r\n:4\r\n", "*1\r\n*1\r\n", "*1\r\n$x\r\n", "*1\r\n$\r\n", "*1\r\n$-1\r\n",
		"*1\r\n$+4\r\nPING\r\n",
		"*1\r\n$04\r\nPING\r\n", "*1\r\n$ 4\r\nPING\r\n", "*1\r\n$536870913\r\n", "*1\r\n$99999999999999999999\r\n",
		"*2\r\n$4\r\nECHO\r\n$-5\r\n", "*2\r\n$4\r\nECHO\r\n\xff\r\n",
		"PING \"a\r\n", "PING 'a\n", "PING \"a\"b\r\n", "PING 'a'b\r\n", "\"\r\n", "'\r\n", "PING \"\\\r\n",
		"QUIT\r\n", "*1\r\n$4\r\nquit\r\n", "*2\r\n$4\r\nQUIT\r\n$3\r\nnow\r\n",
	}
	// tooLong are inputs whose end is missing, one byte longer than a server accepts without it.
	tooLong = []string{
		strings.Repeat("a", 65537), "*" + strings.Repeat("1", 65536), "*1\r\n$" + strings.Repeat("1", 65536),
		"PING \"" + strings.Repeat(" ", 65531),
	}
)

// grammar has the forms of the commands that both servers have: i is an integer, w a word, b a word
// that may contain zero bytes, =X the word X. (Redis's errors repeat a call only up to a zero
// byte.)
var grammar = map[string][][]string{
	"PING": {{}, {"b"}}, "ECHO": {{"b"}}, "SELECT": {{"i"}}, "GET": {{"b"}}, "EXISTS": {{"b"}, {"b", "b"}},
	"DEL":    {{"b"}, {"b", "b", "b"}},
	"UNLINK": {{"b"}, {"b", "b"}}, "TYPE": {{"b"}}, "TTL": {{"b"}}, "PTTL": {{"b"}}, "EXPIRETIME": {{"b"}}, "DBSIZE": {{}},
	"RANDOMKEY": {{}},
	"KEYS":      {{"b"}}, "RESET": {{}}, "TIME": {{"w"}}, "READONLY": {{}, {"w"}}, "READWRITE": {{}}, "ASKING": {{}},
	"SCAN": {
		{"i"}, {"i", "=MATCH", "b"}, {"i", "=COUNT", "i"}, {"i", "=TYPE", "=string"}, {"=0", "=count", "i", "=match", "w"},
		{"=0", "w", "w"}, {"=0", "=COUNT"}, {"=0", "=MATCH", "w", "=MATCH", "w"},
	},
	"FLUSHDB":  {{}, {"=ASYNC"}, {"=sync"}, {"w"}, {"=SYNC", "=ASYNC"}},
	"FLUSHALL": {{}, {"=async"}, {"=SYNC"}, {"w"}},
	"HELLO": {
		{}, {"=2"}, {"=3"}, {"i"}, {"w"}, {"=3", "=AUTH", "=default", "w"}, {"=2", "=AUTH", "w", "w"},
		{"=3", "=SETNAME", "w"}, {"=2", "w"},
		{"=3", "w", "w"}, {"=3", "=AUTH", "=default", "w", "=SETNAME", "w"},
		// SETNAME is the last option: if a later option fails, Redis keeps the name and cellserver
		// does not.
	},
	"AUTH": {{"w"}, {"=default", "b"}, {"w", "w"}, {"w", "w", "w"}},
	"CLIENT": {
		{"=ID"}, {"=id"}, {"=GETNAME"}, {"=SETNAME", "w"}, {"=setname", "w"}, {"=SETNAME", "=me"},
		{"=LIST", "=ID", "=987654321"}, {"=LIST", "=ID", "=x"},
		{"=LIST", "=TYPE", "=pubsub"}, {"=LIST", "=TYPE", "w"}, {"=LIST", "w"}, {"=LIST", "=ID"}, {"=FOO"}, {"=ID", "w"},
		{"=GETNAME", "w"},
		{"=LIST", "=ID", "i"}, {"=nosuch", "w", "w"},
	},
	"COMMAND": {
		{"=GETKEYS", "=GET", "b"}, {"=GETKEYS", "=DEL", "b", "w"}, {"=GETKEYS", "=get"}, {"=GETKEYS", "=PING", "w"},
		{"=GETKEYS", "w"},
		{"=GETKEYS"}, {"=GETKEYS", "=nosuch", "w"}, {"=FOO"}, {"=COUNT", "w"}, {"=INFO", "=nosuch"}, {"=DOCS", "=nosuch"},
		{"=LIST", "=FILTERBY", "=MODULE", "w"}, {"=LIST", "=FILTERBY", "w", "w"}, {"=LIST", "w"},
		{"=LIST", "=FILTERBY", "=PATTERN", "=nosuch*"},
		{"=LIST", "=FILTERBY", "=ACLCAT", "=nosuch"}, {"=GETKEYS", "=SCAN", "=0"}, {"=GETKEYS", "=EXISTS", "w", "w", "w"},
		{"=GETKEYS", "=config", "=get", "w"},
		{"=INFO", "=client|nosuch"}, {"=GETKEYS", "=UNLINK", "w"}, {"=GETKEYS", "=CLIENT", "=ID"}, {"=GETKEYS", "=CLIENT"},
		{"=GETKEYS", "=TTL", "w"},
	},
	"CONFIG": {{"=GET", "=nosuch"}, {"=GET", "=nosuch*", "=[a"}, {"=GET"}, {"=FOO"}, {"=get", "=databases"},
		{"=GET", "="}},
	"INFO":    {{"=nosuch"}, {"=nosuch", "=nor", "=this"}},
	"CLUSTER": {{"=SLOTS"}, {"=info"}, {"=NODES"}, {}},
}

// commands are the names in grammar, in a fixed order.
var commands = strings.Fields("PING ECHO SELECT GET EXISTS DEL UNLINK TYPE TTL PTTL EXPIRETIME DBSIZE RANDOMKEY KEYS RESET TIME " +
	"READONLY READWRITE ASKING SCAN FLUSHDB FLUSHALL HELLO AUTH CLIENT COMMAND CONFIG INFO CLUSTER")

// call returns mostly a call of the grammar, and sometimes a call of random words.
func (a *author) call() []string {
	if a.IntN(10) == 0 {
		return append([]string{a.pick(names)}, a.words(a.IntN(5))...)
	}
	name := a.pick(commands)
	call := []string{a.cased(name)}
	forms := grammar[name]
	for _, form := range forms[a.IntN(len(forms))] {
		switch form {
		case "i":
			call = append(call, a.pick(integers))
		case "w":
			call = append(call, a.word())
		case "b":
			call = append(call, a.pick([]string{a.word(), a.word(), "\x00", "a\x00b"}))
		default:
			call = append(call, strings.TrimPrefix(form, "="))
		}
	}
	if a.IntN(10) == 0 && takesRandomWords(name) {
		call = append(call[:1], a.words(a.IntN(5))...)
	}
	return call
}

// takesRandomWords reports whether a command may be called with random words. With other commands, random words
// could get replies that differ on purpose.
func takesRandomWords(name string) bool {
	return !strings.Contains("TIME CLIENT COMMAND CONFIG INFO CLUSTER", name)
}

func (a *author) word() string {
	if a.IntN(300) == 0 {
		return strings.Repeat("long ", 4000+a.IntN(9000)) // a key has at most 65536 bytes here
	}
	return a.pick(words)
}

func (a *author) words(n int) (all []string) {
	for range n {
		all = append(all, a.word())
	}
	return all
}

func (a *author) cased(name string) string {
	letters := []byte(name)
	for i := range letters {
		if a.IntN(4) == 0 {
			letters[i] |= 0x20
		}
	}
	return string(letters)
}

// inline writes a call as a line, each word plain or in quotes.
func (a *author) inline() string {
	var b strings.Builder
	for i, word := range a.call() {
		if i > 0 {
			b.WriteString(a.pick([]string{" ", "  ", "\t", " \t "}))
		}
		b.WriteString(a.quoted(word))
	}
	return b.String() + a.pick([]string{"\r\n", "\n"})
}

func (a *author) quoted(word string) string {
	plain := word != "" && !strings.ContainsAny(word, " \t\r\n\v\f\"'\x00\\") && word[0] != '*'
	if plain && a.IntN(3) > 0 {
		return word
	}
	if single := !strings.ContainsAny(word, "'\\\r\n\x00"); single && a.IntN(3) == 0 {
		return "'" + word + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(word) {
		switch c := word[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, "\\x%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "\""
}
