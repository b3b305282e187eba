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

// testCommands is the command list of a small server.
func testCommands() *Commands {
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

func newUser(t *testing.T, rules ...string) *User {
	u, err := testCommands().New("u", false).With(rules, false)
	require.NoError(t, err, "%q", rules)
	return u
}

// Each list of rules results in the expected line.
func TestRules(t *testing.T) {
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
		// Categories without commands here, and commands of Redis that do not exist here.
		{"-@geo +@set +@hash -@list", "user u off resetchannels -@all +@set +@hash -@list"},
		{"+hset -EVAL +script|load -debug", "user u off resetchannels -@all +hset +script|load"},
		{"+hset -hset", "user u off resetchannels -@all"},
		{"+@hash -HSET", "user u off resetchannels -@all +@hash -hset"},
		{"+@read -hget", "user u off resetchannels -@all +@read -hget"},
		{"+@all +hset -hget -@geo", "user u off resetchannels +@all -hget -@geo"},
		{"+hset +@hash -@write", "user u off resetchannels -@all"}, // Redis's hset is in @write
		{"+@hash -hset +@all", "user u off resetchannels +@all"},
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
		u := newUser(t, strings.Fields(c.rules)...)
		assert.Equal(t, sorted(c.want), sorted(u.String()), c.rules)
		again, err := testCommands().New("u", false).With(strings.Fields(strings.TrimPrefix(u.String(), "user u ")), false)
		require.NoError(t, err, u.String())
		assert.Equal(t, u.String(), again.String(), "what it is described as makes the same user")
	}
}

// sorted sorts the single commands of a line, whose order does not matter.
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

func TestInvalidRules(t *testing.T) {
	long := strings.Repeat("x", maxPattern+1)
	for rules, reason := range map[string]string{
		"nonsense": syntax, "%~x": syntax, "%RR~x": syntax, "%X~x": syntax, "%": syntax, "~a\x00": syntax, "&a\tb": syntax,
		")": syntax, "(~'a')": syntax,
		"+": unknown, "-": unknown, "+@": unknown, "-@nosuch": unknown, "+nosuch": unknown, "+config|nosuch": unknown,
		"+hset|x": unknown, "+script|nosuch": unknown, "-select|0": unknown, "+nosuch|": unknown,
		"+get|a|b": unknown, "+get|": syntax, "+config|": syntax, "+config|get|x": firstArgOfSub,
		"<nosuch": noPassword, "#123": wrongHash, "#" + strings.Repeat("A", 64): wrongHash,
		"!" + strings.Repeat("g", 64): wrongHash,
		"!" + strings.Repeat("a", 64): noPassword, "(on)": syntax, "(~a) ~b)": syntax, "+select|1 nopass": syntax,
		"+select|1\n": syntax, "(>pw)": syntax,
		"~" + long: tooLong, "&" + long: tooLong, "%R~" + long: tooLong, ">" + strings.Repeat("x", MaxPassword+1): tooLong,
	} {
		_, err := testCommands().New("u", false).With([]string{"on", rules}, false)
		var ruleError *RuleError
		require.ErrorAs(t, err, &ruleError, rules)
		assert.Equal(t, reason, ruleError.Reason, rules)
		assert.Equal(t, reason == unknown, ruleError.Unknown)
	}
	_, err := testCommands().New("u", false).With([]string{"~*", "~a"}, false)
	assert.EqualError(t, err, "Error in ACL SETUSER modifier '~a': "+afterKeys)
	_, err = testCommands().New("u", true).With([]string{"&a"}, true)
	assert.EqualError(t, err, "Error in ACL SETUSER modifier '&a': "+afterAll)
	_, err = testCommands().New("u", false).With([]string{"on", "(+get", "~a"}, false)
	assert.EqualError(t, err, "Unmatched parenthesis in acl selector starting at '(+get'.")
}

func TestUserSizeIsBounded(t *testing.T) {
	u := testCommands().New("u", false)
	var err error
	for i := range maxSize - 1 {
		u, err = u.With([]string{fmt.Sprint("~", i)}, false)
		require.NoError(t, err)
	}
	for _, rule := range []string{"~one-more", "&c", ">pw", "()", "+select|0"} {
		_, err = u.With([]string{rule}, false)
		require.ErrorContains(t, err, tooManyRules, rule)
	}
}

// Applying rules never changes the user they are applied to.
func TestUsersAreImmutable(t *testing.T) {
	u := newUser(t, "on", ">a", ">b", "~a", "~b", "&c", "+get", "+select|0", "(+set ~x)")
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
	two := newUser(t, "on", ">one", ">two\x00")
	for password, valid := range map[string]bool{"one": true, "two\x00": true, "two": false, "": false, "One": false,
		"one ":                             false,
		strings.Repeat("x", MaxPassword+1): false} {
		assert.Equal(t, valid, two.Verify([]byte(password)), "%q", password)
	}
	off, err := two.With([]string{"off"}, false)
	require.NoError(t, err)
	assert.False(t, off.Verify([]byte("one")))
	assert.True(t, newUser(t, "on", "nopass").Verify([]byte("any")))
	assert.False(t, newUser(t, "nopass").Verify([]byte("any")), "a user that is off")
	assert.False(t, newUser(t, "on").Verify(nil), "a user without passwords")
	assert.False(t, (*User)(nil).Verify(make([]byte, 0)), "a user that does not exist")
	long := newUser(t, "on", ">"+strings.Repeat("x", MaxPassword))
	assert.True(t, long.Verify([]byte(strings.Repeat("x", MaxPassword))))
	assert.False(t, long.Verify([]byte(strings.Repeat("x", MaxPassword+1))))
}

func check(u *User, name string, access Access, arguments ...string) string {
	n, _ := testCommands().find(name)
	r := Request{Command: n, Words: [][]byte{[]byte(name)}, Access: []Access{access}, Steps: 1000}
	for _, word := range arguments {
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
	u := newUser(t, "+get", "+select|0", "%R~r:*", "~both", "&c?", "+publish", "(+set %W~w:* ~both2 &*)")
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
		{"get", 0, []string{"w:1"}, "key 0"}, // the other selector allows this key, but not get
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
		assert.Equal(t, c.want, check(u, c.name, c.access, c.more...), "%s %q", c.name, c.more)
	}
	r := Request{Command: 6, Channels: [][]byte{[]byte("c?")}, Literal: true, Steps: 10}
	denied, _ := u.Check(&r)
	assert.Equal(t, Allowed, denied)
	r.Channels[0] = []byte("c1")
	denied, _ = u.Check(&r)
	assert.Equal(t, DeniedChannel, denied, "a literal channel must equal the pattern; matching it is not enough")
	r = Request{Command: 3, AlwaysAllowed: true}
	denied, _ = u.Check(&r)
	assert.Equal(t, Allowed, denied)
}

// A check that takes too many steps ends with a refusal.
func TestCheckIsBounded(t *testing.T) {
	u := newUser(t, "+get", "~*aaaaaaaab*", "~k*")
	n, _ := testCommands().find("get")
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
	assert.Less(t, r.Steps, 100_000-1000, "patterns that fail at their first byte must cost a step too")
}

func TestUnrestricted(t *testing.T) {
	assert.True(t, testCommands().Default().Unrestricted())
	assert.True(t, newUser(t, "(~* &* +@all)").Unrestricted())
	for _, rules := range [][]string{{"~*", "&*"}, {"~*", "+@all"}, {"&*", "+@all"}, {"~*", "&*", "+@all", "-get"},
		{"~*", "&*", "+@all", "-config|get"}, {"%RW~*", "&*", "+@all"}} {
		assert.False(t, newUser(t, rules...).Unrestricted(), "%q", rules)
	}
}

func TestSubscriptions(t *testing.T) {
	u := newUser(t, "&a*", "(&b)")
	assert.True(t, u.MaySubscribe([]byte("ax"), false))
	assert.True(t, u.MaySubscribe([]byte("b"), false))
	assert.False(t, u.MaySubscribe([]byte("c"), false))
	assert.True(t, u.MaySubscribe([]byte("a*"), true))
	assert.False(t, u.MaySubscribe([]byte("ax"), true))
	assert.True(t, newUser(t, "&a*", "&b", "&c").AllowsChannelsOf(u))
	assert.True(t, newUser(t, "&*").AllowsChannelsOf(u))
	assert.False(t, newUser(t, "&a*").AllowsChannelsOf(u))
	assert.False(t, newUser(t, "&a*").AllowsChannelsOf(newUser(t, "&*")))
}

func TestFiles(t *testing.T) {
	c := testCommands()
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

// Any text results in a user or in an error, and the description of a user makes the same user
// again.
func FuzzRules(f *testing.F) {
	for _, seed := range []string{"on >pw ~a +get", "( +get ~a ) (", "%RW~* &x -@all +select|0", "%", "(((", ")", "+|",
		"-", "#", "reset\x00", "(~a) ~b)", "+select|a b", "on_(~a +get)_~(_~)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := testCommands().New("u", false).With(strings.Split(text, " "), false)
		if err != nil {
			if u, err = testCommands().New("u", false).With(strings.Split(text, "_"), false); err != nil {
				return
			}
		}
		described := strings.Split(strings.TrimPrefix(u.String(), "user u "), " ")
		again, err := testCommands().New("u", false).With(described, false)
		require.NoError(t, err, "%q", u.String())
		require.Equal(t, u.String(), again.String())
		r := Request{Command: 0, Keys: [][]byte{[]byte(text)}, Access: []Access{Read}, Steps: 1000}
		_, _ = u.Check(&r)
		_, _ = testCommands().Parse("f", text, false)
	})
}
