package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// few are the commands of a small server.
func few() *Commands {
	return NewCommands([]Command{
		{"get", -1, []string{"read", "string", "fast"}},
		{"set", -1, []string{"write", "string", "slow"}},
		{"config", -1, []string{"slow"}},
		{"config|get", 2, []string{"admin", "slow", "dangerous"}},
		{"config|set", 2, []string{"admin", "slow", "dangerous"}},
		{"select", -1, []string{"fast", "connection"}},
		{"publish", -1, []string{"pubsub", "fast"}},
		{"cl.throttle", -1, []string{"write", "ratelimit", "fast"}},
		{"exists", -1, []string{"keyspace", "read", "fast"}},
		{"touch", -1, []string{"keyspace", "read", "fast"}},
	})
}

func make1(t *testing.T, rules ...string) *User {
	u, err := few().New("u", false).With(rules, false)
	require.NoError(t, err, "%q", rules)
	return u
}

// Rules, and the line that they come to.
func TestRulesAndWhatTheyComeTo(t *testing.T) {
	hash := hex.EncodeToString(func() []byte { h := sha256.Sum256([]byte("pw")); return h[:] }())
	for _, c := range []struct{ rules, want string }{
		{"", "user u off resetchannels -@all"},
		{"on nopass ~* &* +@all", "user u on nopass ~* &* +@all"},
		{"ON AllKeys AllChannels AllCommands", "user u on ~* &* +@all"},
		{">pw", "user u off #" + hash + " resetchannels -@all"},
		{">pw >pw <pw", "user u off resetchannels -@all"},
		{"nopass >pw", "user u off #" + hash + " resetchannels -@all"},
		{">pw nopass", "user u off nopass resetchannels -@all"},
		{"#" + hash + " !" + hash, "user u off resetchannels -@all"},
		{"~a* %R~b %W~b %W~c %rw~d", "user u off ~a* ~b %W~c ~d resetchannels -@all"},
		{"&x &y &x", "user u off resetchannels &x &y -@all"},
		{"~a allkeys resetkeys ~b", "user u off ~b resetchannels -@all"},
		{"+get", "user u off resetchannels -@all +get"},
		{"+GET +Config|SET", "user u off resetchannels -@all +config|set +get"},
		{"+config -config|set", "user u off resetchannels -@all +config -config|set"},
		{"+@all -@admin", "user u off resetchannels +@all -@admin"},
		{"+@string -set", "user u off resetchannels -@all +get"},
		{"+@ratelimit", "user u off resetchannels -@all +@ratelimit"},
		{"+@set +@hash", "user u off resetchannels -@all"},                    // in which no command is here
		{"+hset -EVAL +script|load -debug", "user u off resetchannels -@all"}, // nor are these
		{"+select|0 +select|1 +SELECT|0", "user u off resetchannels -@all +select|0 +select|1"},
		{"+select|0 -select", "user u off resetchannels -@all"},
		{"+select|0 +@all -@all", "user u off resetchannels -@all"},
		{"(+get ~a) (+set ~b &c)",
			"user u off resetchannels -@all (~a resetchannels -@all +get) (~b resetchannels &c -@all +set)"},
		{"(+get ~a) clearselectors", "user u off resetchannels -@all"},
		{"()", "user u off resetchannels -@all (resetchannels -@all)"},
		{"on >pw ~a &b +get (+set) reset", "user u off sanitize-payload resetchannels -@all"},
		{"skip-sanitize-payload", "user u off skip-sanitize-payload resetchannels -@all"},
	} {
		u := make1(t, strings.Fields(c.rules)...)
		assert.Equal(t, sorted(c.want), sorted(u.String()), c.rules)
		again, err := few().New("u", false).With(strings.Fields(strings.TrimPrefix(u.String(), "user u ")), false)
		require.NoError(t, err, u.String())
		assert.Equal(t, u.String(), again.String(), "what it is described as makes the same user")
	}
}

// sorted has the single commands of a line in an order that does not matter.
func sorted(line string) string {
	words := strings.Fields(line)
	for i := range words {
		for j := i; j > 0 && strings.HasPrefix(words[j], "+") && strings.HasPrefix(words[j-1], "+") &&
			words[j] < words[j-1] && words[j-1] != "+@all"; j-- {
			words[j], words[j-1] = words[j-1], words[j]
		}
	}
	return strings.Join(words, " ")
}

func TestRulesThatAreNone(t *testing.T) {
	long := strings.Repeat("x", maxPattern+1)
	for rules, why := range map[string]string{
		"nonsense": syntax, "%~x": syntax, "%RR~x": syntax, "%X~x": syntax, "%": syntax, "~a\x00": syntax, "&a\tb": syntax,
		")": syntax, "(~'a')": syntax,
		"+": unknown, "-": unknown, "+@": unknown, "-@nosuch": unknown, "+nosuch": unknown, "+config|nosuch": unknown,
		"+hset|x": unknown, "+script|nosuch": unknown, "-select|0": unknown, "+nosuch|": unknown,
		"+get|a|b": unknown, "+get|": syntax, "+config|": syntax, "+config|get|x": firstOfSub,
		"<nosuch": noPassword, "#123": wrongHash, "#" + strings.Repeat("A", 64): wrongHash,
		"!" + strings.Repeat("g", 64): wrongHash,
		"!" + strings.Repeat("a", 64): noPassword, "(on)": syntax, "(~a) ~b)": syntax, "+select|1 nopass": syntax,
		"+select|1\n": syntax, "(>pw)": syntax,
		"~" + long: tooLong, "&" + long: tooLong, "%R~" + long: tooLong, ">" + strings.Repeat("x", MaxPassword+1): tooLong,
	} {
		_, err := few().New("u", false).With([]string{"on", rules}, false)
		var wrong *RuleError
		require.ErrorAs(t, err, &wrong, rules)
		assert.Equal(t, why, wrong.Why, rules)
		assert.Equal(t, why == unknown, wrong.Unknown)
	}
	_, err := few().New("u", false).With([]string{"~*", "~a"}, false)
	assert.EqualError(t, err, "Error in ACL SETUSER modifier '~a': "+afterKeys)
	_, err = few().New("u", true).With([]string{"&a"}, true)
	assert.EqualError(t, err, "Error in ACL SETUSER modifier '&a': "+afterAll)
	_, err = few().New("u", false).With([]string{"on", "(+get", "~a"}, false)
	assert.EqualError(t, err, "Unmatched parenthesis in acl selector starting at '(+get'.")
}

func TestAUserIsBounded(t *testing.T) {
	u := few().New("u", false)
	var err error
	for i := range maxSize - 1 {
		u, err = u.With([]string{fmt.Sprint("~", i)}, false)
		require.NoError(t, err)
	}
	for _, rule := range []string{"~one-more", "&c", ">pw", "()", "+select|0"} {
		_, err = u.With([]string{rule}, false)
		require.ErrorContains(t, err, tooManySaid, rule)
	}
}

// A user does not change, whatever is made of it.
func TestUsersNeverChange(t *testing.T) {
	u := make1(t, "on", ">a", ">b", "~a", "~b", "&c", "+get", "+select|0", "(+set ~x)")
	before := u.String()
	for _, rule := range []string{"off", "<a", "resetpass", "%R~a", "~c", "resetkeys", "&d", "+select|1", "-get", "+@all",
		"reset", "clearselectors", "(+get)", ">c"} {
		_, err := u.With([]string{rule, rule}, false)
		if rule != "<a" {
			require.NoError(t, err)
		}
		require.Equal(t, before, u.String(), rule)
	}
}

func TestPasswords(t *testing.T) {
	two := make1(t, "on", ">one", ">two\x00")
	for password, right := range map[string]bool{"one": true, "two\x00": true, "two": false, "": false, "One": false,
		"one ":                             false,
		strings.Repeat("x", MaxPassword+1): false} {
		assert.Equal(t, right, two.Verify([]byte(password)), "%q", password)
	}
	off, err := two.With([]string{"off"}, false)
	require.NoError(t, err)
	assert.False(t, off.Verify([]byte("one")))
	assert.True(t, make1(t, "on", "nopass").Verify([]byte("any")))
	assert.False(t, make1(t, "nopass").Verify([]byte("any")), "off")
	assert.False(t, make1(t, "on").Verify(nil), "none")
	assert.False(t, (*User)(nil).Verify(make([]byte, 0)), "nobody")
	long := make1(t, "on", ">"+strings.Repeat("x", MaxPassword))
	assert.True(t, long.Verify([]byte(strings.Repeat("x", MaxPassword))))
	assert.False(t, long.Verify([]byte(strings.Repeat("x", MaxPassword+1))))
}

func ask(u *User, name string, access Access, more ...string) string {
	n, _ := few().find(name)
	r := Request{Command: n, Words: [][]byte{[]byte(name)}, Access: []Access{access}, Steps: 1000}
	for _, word := range more {
		r.Words = append(r.Words, []byte(word))
		if name == "publish" {
			r.Channels = append(r.Channels, []byte(word))
		} else if name != "select" {
			r.Keys = append(r.Keys, []byte(word))
		}
	}
	denied, at := u.Check(&r)
	return fmt.Sprint([]string{"ok", "command", "key", "", "channel"}[denied], " ", at)
}

func TestCheck(t *testing.T) {
	u := make1(t, "+get", "+select|0", "%R~r:*", "~both", "&c?", "+publish", "(+set %W~w:* ~both2 &*)")
	for _, c := range []struct {
		name   string
		access Access
		more   []string
		want   string
	}{
		{"get", Read, []string{"r:1"}, "ok 0"},
		{"get", Read, []string{"r:1", "both", "w:1"}, "key 2"},
		{"get", Read | Write, []string{"r:1"}, "key 0"},
		{"get", 0, []string{"r:1", "both"}, "ok 0"},
		{"get", 0, []string{"w:1"}, "key 0"}, // which the other selector has: but not get
		{"set", Write, []string{"w:1"}, "ok 0"},
		{"set", Read | Write, []string{"both2"}, "ok 0"},
		{"set", Read | Write, []string{"w:1"}, "key 0"},
		{"select", 0, []string{"0"}, "ok 0"},
		{"select", 0, []string{"1"}, "command 0"},
		{"select", 0, nil, "command 0"},
		{"config|get", 0, nil, "command 0"},
		{"publish", 0, []string{"c1"}, "ok 0"},
		{"publish", 0, []string{"c11"}, "channel 0"},
	} {
		assert.Equal(t, c.want, ask(u, c.name, c.access, c.more...), "%s %q", c.name, c.more)
	}
	r := Request{Command: 6, Channels: [][]byte{[]byte("c?")}, Literal: true, Steps: 10}
	denied, _ := u.Check(&r)
	assert.Equal(t, Allowed, denied)
	r.Channels[0] = []byte("c1")
	denied, _ = u.Check(&r)
	assert.Equal(t, DeniedChannel, denied, "a pattern that the user's would match")
	r = Request{Command: 3, Free: true}
	denied, _ = u.Check(&r)
	assert.Equal(t, Allowed, denied)
}

// What takes too long to decide is not allowed.
func TestCheckIsBounded(t *testing.T) {
	u := make1(t, "+get", "~*aaaaaaaab*", "~k*")
	n, _ := few().find("get")
	long := []byte(strings.Repeat("a", 60000) + "b")
	r := Request{Command: n, Keys: [][]byte{long}, Access: []Access{Read}, Steps: 1000}
	denied, _ := u.Check(&r)
	assert.Equal(t, DeniedKey, denied)
	r.Steps = 1_000_000
	denied, _ = u.Check(&r)
	assert.Equal(t, Allowed, denied)
	many, err := u.With([]string{"resetkeys"}, false)
	require.NoError(t, err)
	for i := range 2000 {
		many, err = many.With([]string{fmt.Sprint("~", i)}, false)
		require.NoError(t, err)
	}
	r = Request{Command: n, Keys: [][]byte{[]byte("k")}, Access: []Access{Read}, Steps: 100_000}
	_, _ = many.Check(&r)
	assert.Less(t, r.Steps, 100_000-1000, "patterns that fail at once count, too")
}

func TestOpen(t *testing.T) {
	assert.True(t, few().Default().Open())
	assert.True(t, make1(t, "(~* &* +@all)").Open())
	for _, rules := range [][]string{{"~*", "&*"}, {"~*", "+@all"}, {"&*", "+@all"}, {"~*", "&*", "+@all", "-get"},
		{"~*", "&*", "+@all", "-config|get"}, {"%RW~*", "&*", "+@all"}} {
		assert.False(t, make1(t, rules...).Open(), "%q", rules)
	}
}

func TestHearing(t *testing.T) {
	u := make1(t, "&a*", "(&b)")
	assert.True(t, u.MayHear([]byte("ax"), false))
	assert.True(t, u.MayHear([]byte("b"), false))
	assert.False(t, u.MayHear([]byte("c"), false))
	assert.True(t, u.MayHear([]byte("a*"), true))
	assert.False(t, u.MayHear([]byte("ax"), true))
	assert.True(t, make1(t, "&a*", "&b", "&c").HearsAll(u))
	assert.True(t, make1(t, "&*").HearsAll(u))
	assert.False(t, make1(t, "&a*").HearsAll(u))
	assert.False(t, make1(t, "&a*").HearsAll(make1(t, "&*")))
}

func TestFiles(t *testing.T) {
	c := few()
	text := "user alice on  #" + strings.Repeat("0", 64) +
		" ~a +get (+set\t ~b )\r\n\n  \nuser default on nopass ~* &* +@all\n"
	users, err := c.Parse("f", text, false)
	require.NoError(t, err)
	require.Len(t, users, 2)
	again, err := c.Parse("f", users.String(), false)
	require.NoError(t, err)
	assert.Equal(t, users.String(), again.String())
	assert.Equal(t, "user alice on #"+strings.Repeat("0", 64)+
		" ~a resetchannels -@all +get (~b resetchannels -@all +set)\n"+
		"user default on nopass ~* &* +@all\n", users.String())

	users, err = c.Parse("f", "", true)
	require.NoError(t, err)
	assert.Equal(t, "user default on nopass ~* &* +@all\n", users.String())

	const end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
	for text, want := range map[string]string{
		"user\n":                           "f:1 should start with user keyword followed by the username. ",
		"\nalice on":                       "f:2 should start with user keyword followed by the username. ",
		"user a\tb on":                     "'f:1: username 'a\tb' contains invalid characters. ",
		"user a on\nuser a off\nuser b on": "WARNING: Duplicate user 'a' found on line 2. ",
		"user a +nosuch >secret":           "f:1: Error in applying operation '+nosuch': " + unknown + ". ",
		"user a >secret <secret2":          "f:1: " + noPassword + ". ",
		"user a (+get":                     "f:1: Unmatched parenthesis in selector definition.",
		"# a remark\nuser a on\nuser b x": "f:1 should start with user keyword followed by the username. f:3: " + syntax +
			". ",
	} {
		_, err := c.Parse("f", text, false)
		assert.EqualError(t, err, want+end, "%q", text)
	}
	_, err = c.Parse("f", strings.Repeat("x\n", 100_000), false)
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 20<<10)
}

// Whatever is said, a user is made or an error, and what a user is described as makes the same one.
func FuzzRules(f *testing.F) {
	for _, seed := range []string{"on >pw ~a +get", "( +get ~a ) (", "%RW~* &x -@all +select|0", "%", "(((", ")", "+|",
		"-", "#", "reset\x00", "(~a) ~b)", "+select|a b", "on_(~a +get)_~(_~)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := few().New("u", false).With(strings.Split(text, " "), false)
		if err != nil {
			if u, err = few().New("u", false).With(strings.Split(text, "_"), false); err != nil {
				return
			}
		}
		again, err := few().New("u", false).With(strings.Split(strings.TrimPrefix(u.String(), "user u "), " "), false)
		require.NoError(t, err, "%q", u.String())
		require.Equal(t, u.String(), again.String())
		r := Request{Command: 0, Keys: [][]byte{[]byte(text)}, Access: []Access{Read}, Steps: 1000}
		_, _ = u.Check(&r)
		_, _ = few().Parse("f", text, false)
	})
}
