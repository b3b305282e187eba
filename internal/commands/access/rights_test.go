package access_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session"
	"cellserver/internal/store"
)

// A client that has not logged in, or has no rights, can make only the calls that are allowed to
// all clients. The test checks every row.
func TestCallsWithoutRightsAreRefused(t *testing.T) {
	s := commandstest.New(t)
	withoutRights := s.ConnectAs(t, "")
	stranger := s.Connect()
	require.Equal(t, "+OK\r\n", s.Connect().Do(t, "CONFIG SET requirepass secret"))
	stranger.Do(t, "RESET")
	free := 0
	for _, row := range commandstest.AllRows() {
		if row.Run == nil && row.Subs != nil && commandstest.MinWords(row) == 1 || row.Name == "exec" {
			continue
		}
		if row.Flags&command.NoAuth != 0 {
			free++
			continue
		}
		call := commandstest.Encode(commandstest.SampleCall(row, "k"))
		if row.Subs != nil {
			continue // a container is called with a subcommand only, and an unknown subcommand is an unknown command
		}
		require.NoError(t, stranger.Send(call))
		assert.Equal(t, "-NOAUTH Authentication required.\r\n", stranger.Output(), row.Name)
		require.NoError(t, withoutRights.Send(call))
		assert.Equal(
			t,
			"-NOPERM User u has no permissions to run the '"+row.Name+"' command\r\n",
			withoutRights.Output(),
			row.Name,
		)
	}
	assert.Equal(t, 4, free, "AUTH, HELLO, QUIT and RESET")
}

// The rights to every key and every channel of every call are checked, wherever in the call it
// stands.
func TestEveryKeyAndChannelIsAuthorized(t *testing.T) {
	s := commandstest.New(t)
	c := s.ConnectAs(t, "+@all ~k")
	rows := 0
	for _, row := range commandstest.AllRows() {
		switch first, _, _ := row.KeyPositions(); {
		case row.Keys.Rights != nil && row.Name != "cl.all": // see TestRightsToPolicies
		case first != 0:
			rows++
			require.NoError(t, c.Send(commandstest.Encode(commandstest.SampleCall(row, "other"))))
			assert.Equal(t, "-"+"NOPERM No permissions to access a key"+"\r\n", c.Output(), row.Name)
			require.NoError(t, c.Send(commandstest.Encode(commandstest.SampleCall(row, "k"))))
			if !slices.Contains([]string{"rename", "renamenx", "copy"}, row.Name) { // their other key is "1"
				assert.NotContains(t, c.Output(), "NOPERM", row.Name)
			}
			c.Do(t, "UNWATCH")
		case row.Channels != command.NoChannel:
			rows++
			require.NoError(t, c.Send(commandstest.Encode(commandstest.SampleCall(row, ""))))
			assert.Equal(t, "-"+"NOPERM No permissions to access a channel"+"\r\n", c.Output(), row.Name)
		}
	}
	assert.Greater(t, rows, 60)
	many := append([]string{"MGET"}, slices.Repeat([]string{"k"}, 100)...)
	for at := 1; at <= 100; at++ {
		words := slices.Clone(many)
		words[at] = "x"
		require.NoError(t, c.Send(commandstest.Encode(words)))
		require.Equal(t, "-"+"NOPERM No permissions to access a key"+"\r\n", c.Output(), at)
	}
	for _, call := range []string{"MSET k 1 x 1", "CL.ALL 2 FIXED k 1 1 1 THROTTLE x 1 1 1 1",
		"CL.ALL 1 FIXED x 1 1 1 PEEK", "CL.ALL 2 FIXED k 1 1 1 FORCE FIXED x 1 1 1",
		"CL.ALL 2 FIXED k 1 1 1 FORCE ACQUIRE x 1 1 k 1", "CL.ALL 2 ACQUIRE k 1 1 k 1 FIXED x 1 1 1", "COPY k x", "COPY x k", "RENAME k x",
		"SUBSCRIBE a b", "GET x\x00"} {
		assert.Contains(t, c.Do(t, call), "-NOPERM", call)
	}
}

// The rows whose arguments are channels, and no others, name them in Channels; so the test above
// covers all of them.
func TestEveryPubSubRowNamesItsChannels(t *testing.T) {
	for _, row := range commandstest.AllRows() {
		named := len(row.Args) > 0 && slices.Contains([]string{"channel", "shardchannel", "pattern"}, row.Args[0].Name) &&
			row.Group == "pubsub"
		subscribesOrPublishes := strings.Contains(row.Name, "subscribe") && !strings.Contains(row.Name, "unsubscribe") ||
			strings.Contains(row.Name, "publish")
		assert.Equal(t, named && subscribesOrPublishes, row.Channels != command.NoChannel, row.Name)
	}
}

// All words of a long call are checked, outside the event loop; in a transaction, when it is
// queued.
func TestLongCallsAreAuthorizedInFull(t *testing.T) {
	s := commandstest.New(t)
	c := s.ConnectAs(t, "+@all ~k*")
	words := []string{"DEL"}
	for i := range 5000 {
		words = append(words, fmt.Sprint("k", i))
	}
	require.NoError(t, c.Send(commandstest.Encode(words)))
	require.Equal(t, ":0\r\n", c.Output())
	words[4999] = "x"
	require.NoError(t, c.Send(commandstest.Encode(words)))
	require.Equal(t, "-"+"NOPERM No permissions to access a key"+"\r\n", c.Output())
	c.Do(t, "MULTI")
	require.NoError(t, c.Send(commandstest.Encode(words)))
	require.Equal(t, "-"+"NOPERM No permissions to access a key"+"\r\n", c.Output())
	require.Contains(t, c.Do(t, "EXEC"), "EXECABORT")
	require.Contains(t, s.Connect().Do(t, "ACL LOG 1"),
		":1\r\n$6\r\nreason\r\n$3\r\nkey\r\n$7\r\ncontext\r\n$5\r\nmulti\r\n$6\r\nobject\r\n$1\r\nx\r\n")
}

// Calls that arrive together are answered as if they had arrived one by one: a change of rights
// applies to the next call.
func TestRightsWithinAPipeline(t *testing.T) {
	s := commandstest.New(t)
	admin := s.Connect()
	admin.Do(t, "ACL SETUSER u on >pw +get +set +acl|setuser ~k*")
	admin.Do(t, "CONFIG SET requirepass secret")
	long := string(commandstest.Encode(append([]string{"MGET"}, slices.Repeat([]string{"k"}, 20)...)))
	for _, p := range []struct{ calls, want string }{
		{"GET k\r\nAUTH u pw\r\nGET k\r\nGET x\r\nAUTH secret\r\nGET x\r\nRESET\r\nGET k\r\n",
			"-NOAUTH|+OK|$-1|-NOPERM|+OK|$-1|+RESET|-NOAUTH"},
		{"AUTH secret\r\n" + long, "+OK|*20" + strings.Repeat("|$-1", 20)},
		{"AUTH wrong\r\n" + long + "PING\r\n", "-WRONGPASS|-ERR Protocol error: unauthenticated multibulk length"},
		{"AUTH secret\r\nRESET\r\nPING\r\n" + long,
			"+OK|+RESET|-NOAUTH|-ERR Protocol error: unauthenticated multibulk length"},
		{"AUTH u pw\r\nGET k\r\nACL SETUSER u -get\r\nGET k\r\nACL SETUSER u +get\r\nGET k\r\n",
			"+OK|$-1|+OK|-NOPERM|+OK|$-1"},
		{"AUTH secret\r\nMULTI\r\nAUTH u pw\r\nGET x\r\nGET k\r\nACL SETUSER u -get\r\nGET k\r\nEXEC\r\nGET k\r\n",
			"+OK|+OK|+QUEUED|+QUEUED|+QUEUED|+QUEUED|+QUEUED|*5|+OK|-NOPERM|$-1|+OK|-NOPERM|-NOPERM"},
		{"HELLO 3 AUTH u pw SETNAME me\r\nSET k 1\r\nHELLO 2 AUTH u wrong\r\nSET k 1\r\n", "%7|+OK|-WRONGPASS|+OK"},
	} {
		admin.Do(t, "ACL SETUSER u +get")
		c := s.Connect()
		require.NoError(t, c.Send([]byte(p.calls)))
		require.Equal(t, p.want, outline(c.Output(), p.want), p.calls)
	}
}

// outline returns the first lines of replies, as many as want has. An error is shortened to its
// code unless want has the whole of it.
func outline(replies, want string) string {
	var lines []string
	for _, line := range strings.Split(strings.TrimSuffix(replies, "\r\n"), "\r\n") {
		if strings.HasPrefix(line, "-") && !strings.Contains(want, line) {
			line, _, _ = strings.Cut(line, " ")
		}
		if strings.HasPrefix(line, "%") || len(lines) == 0 || !strings.HasPrefix(lines[0], "%") || line[0] == '-' ||
			line == "+OK" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "|")
}

// The input of a client that has not logged in is bounded.
func TestUnauthenticatedInputIsBounded(t *testing.T) {
	s := commandstest.New(t)
	other := s.Connect()
	other.Do(t, "CONFIG SET requirepass secret")
	c := s.Connect()
	longest := strings.Repeat("x", 16384)
	require.NoError(t, c.Send(commandstest.Encode([]string{"AUTH", longest[:16000], longest})))
	require.Contains(t, c.Output(), "-WRONGPASS")
	require.NoError(t, c.Send([]byte("*10\r\n")))
	require.NoError(t, c.Send([]byte("$16384\r\n"+longest+"\r\n$16000\r\n"+longest[:16000]+"\r\n")))
	require.False(t, c.Session.Closing())
	require.Less(t, c.Session.BufferSizes.Load()&(1<<32-1), int64(40_000))
	require.NoError(t, c.Send([]byte("$16384\r\n"+longest+"\r\n")))
	require.True(t, c.Session.Closing(), "a client that has not logged in may send too long a call")

	c = s.Connect()
	require.Equal(t, "+OK\r\n", other.Do(t, "CLIENT PAUSE 100000"))
	require.NoError(t, c.Send([]byte("PING\r\n")))
	for sent := 0; sent < session.MaxUnauthenticatedInput; sent += 1 << 13 {
		require.False(t, c.Session.Closing())
		c.Session.Feed([]byte(strings.Repeat("PING\r\n  ", 1<<13/8)))
	}
	require.False(t, c.Session.Closing())
	c.Session.Feed([]byte("P"))
	require.True(t, c.Session.Closing())
}

// The clients of a deleted user are disconnected, and from then on their calls are not answered,
// even if the connection is still open.
func TestClientsOfDeletedUserAreDisconnected(t *testing.T) {
	s := commandstest.New(t)
	c := s.ConnectAs(t, "+@all ~* &*")
	require.Equal(t, ":1\r\n", s.Connect().Do(t, "ACL DELUSER u"))
	require.True(t, c.IsDisconnected())
	c.Session.Feed([]byte("GET k\r\nPING\r\n"))
	require.Empty(t, c.Output())
	require.NotContains(t, s.Connect().Do(t, "CLIENT LIST"), "user=u")

	own := s.ConnectAs(t, "+@all ~* &*")
	require.Equal(t, ":1\r\n", own.Do(t, "ACL DELUSER u"), "it must get the reply to its own call")
	require.True(t, own.Session.Closing())
}

// A client subscribes while it loses the right to: whichever comes first, it has no subscription in
// the end.
func TestNoSubscriptionWithoutRight(t *testing.T) {
	s := commandstest.New(t)
	for range 200 {
		c := s.ConnectAs(t, "+@all &a &b")
		admin := s.Connect()
		var both sync.WaitGroup
		both.Go(func() { _ = c.Send([]byte("SUBSCRIBE a b\r\n")) }) // or it is disconnected
		both.Go(func() { admin.Do(t, "ACL SETUSER u resetchannels &a") })
		both.Wait()
		if c.Session.IsSubscribed() {
			require.True(t, c.IsDisconnected() || c.Session.Closing())
		} else {
			require.Contains(t, c.Output(), "NOPERM")
		}
		c.Close()
		admin.Close()
	}
}

// A client logs in while its user is deleted: in the end, no session is logged in as that user.
func TestNoSessionOfDeletedUser(t *testing.T) {
	s := commandstest.New(t)
	for range 200 {
		admin, c := s.Connect(), s.Connect()
		admin.Do(t, "ACL SETUSER u on nopass +@all ~*")
		var both sync.WaitGroup
		both.Go(func() { _ = c.Send([]byte("AUTH u x\r\n")) })
		both.Go(func() { admin.Do(t, "ACL DELUSER u") })
		both.Wait()
		said := c.Output()
		if c.IsDisconnected() {
			continue
		}
		require.Contains(t, said, "-WRONGPASS")
		require.Equal(t, "$7\r\ndefault\r\n", c.Do(t, "ACL WHOAMI"))
		c.Close()
		admin.Close()
	}
}

// A password, or its hash, is only in the memory of the code that compares it.
func TestSecretsAreNotExposed(t *testing.T) {
	s := commandstest.New(t)
	admin, watcher := s.Connect(), s.Connect()
	admin.Do(t, "CONFIG SET slowlog-log-slower-than 0")
	watcher.Do(t, "MONITOR")
	var said strings.Builder
	for _, call := range []string{"CONFIG SET requirepass s3cret", "config set RequirePass s3cret acllog-max-len 100",
		"AUTH s3cret", "AUTH default s3cret", "AUTH nobody s3cret2",
		"HELLO 3 AUTH default s3cret SETNAME x", "ACL SETUSER u on >s3cret ~*", "ACL SETUSER u >s3cret nonsense",
		"ACL SETUSER u <s3cret", "AUTH a s3cret c",
		"CONFIG SET requirepas s3cret", "CONFIG SET masterauth s3cret", "CONFIG SET requirepass my s3cret",
		"CONFIG SET user 'default on >s3cret'", "CONFIG SET store redis://:s3cret@host", "CONFIG SET port 1 s3cret",
		"HELLO 3 AUTH s3cret", "HELLO 3 AUTH setname s3cret", "HELLO 3 AUHT default s3cret",
		"HELLO 3 SETNAME x AUTH default s3cret extra",
		"ACL DRYRUN default AUTH s3cret", "ACL DRYRUN default AUHT s3cret", "ACL DRYRUN nobody HELLO 3 AUTH u s3cret",
		"ACL DRYRUN default CONFIG SET requirepass s3cret", "ACL DRYRUN default CONFIG ST requirepass s3cret",
		"ACL DRYRUN default ACL DRYRUN default AUTH s3cret", "COMMAND GETKEYS AUTH s3cret",
		"COMMAND GETKEYSANDFLAGS ACL SETUSER u >s3cret",
		"CL.POLICY TEST 192.0.2.7 by-key HEADER X-Api-Key s3cret", "CL.POLICY TEST - by-key HEADER X-Plan a X-Api-Key s3cret",
		"CL.POLICY TEST 192.0.2.7 by-key X-Api-Key s3cret",
		"MULTI", "AUTH s3cret", "CONFIG SET requirepass s3cret", "EXEC"} {
		said.WriteString(admin.Do(t, call))
	}
	assert.Contains(t, admin.Do(t, "SLOWLOG GET -1"), "acllog-max-len\r\n$3\r\n100")
	for _, call := range []string{"SLOWLOG GET -1", "INFO ALL", "CLIENT LIST", "ACL LIST", "ACL GETUSER default",
		"ACL LOG", "LATENCY HISTOGRAM", "COMMAND DOCS"} {
		said.WriteString(admin.Do(t, call))
	}
	said.WriteString(commandstest.Pushed(watcher))
	assert.Contains(t, said.String(), "(redacted)")
	assert.NotContains(t, said.String(), "s3cret")
	assert.Contains(t, admin.Do(t, "CONFIG GET requirepass"), "s3cret", "which Redis shows, too")
}

// ACL LOG is bounded in entries and in bytes, whatever clients try. Similar entries within a minute
// are one entry.
func TestACLLogIsBounded(t *testing.T) {
	s := commandstest.New(t)
	admin := s.Connect()
	admin.Do(t, "CONFIG SET requirepass s acllog-max-len 5")
	require.NoError(t, admin.Send(commandstest.Encode([]string{"CLIENT", "SETNAME", strings.Repeat("n", 100_000)})))
	log := &s.Instance.Accounts.DeniedLog
	for i := range 50 {
		require.NoError(t, admin.Send(commandstest.Encode([]string{"AUTH", fmt.Sprint(i, strings.Repeat("u", 10_000)), "x"})))
	}
	require.Len(t, log.Entries, 5)
	for _, e := range log.Entries {
		require.LessOrEqual(t, len(e.User)+len(e.Client)+len(e.Object), 2*access.MaxLoggedObject+access.MaxLoggedClient)
	}
	admin.Do(t, "ACL LOG RESET")
	for range 3 {
		admin.Do(t, "AUTH a x")
	}
	admin.Do(t, "AUTH b x")
	admin.Do(t, "AUTH a x")
	require.Len(t, log.Entries, 2)
	require.EqualValues(t, 4, log.Entries[0].Count)
	require.Equal(t, log.Entries[1].ID, log.Entries[0].ID+1, "a similar entry must keep its number")
	require.NoError(t, s.Advance(30*time.Second))
	admin.Do(t, "AUTH a x")
	require.EqualValues(t, 30e9, log.Entries[0].At-log.Entries[0].First)
	require.NoError(t, s.Advance(61*time.Second))
	admin.Do(t, "AUTH a x")
	require.Len(t, log.Entries, 3)
	require.Contains(t, admin.Do(t, "ACL LOG"), "$2\r\n91\r\n", "age-seconds")
	admin.Do(t, "CONFIG SET acllog-max-len 0")
	admin.Do(t, "AUTH c x")
	require.Empty(t, log.Entries)
	require.Contains(t, admin.Do(t, "INFO stats"), "acl_access_denied_auth:58\r\n")
	for _, wrong := range []string{"-1", "100001", "x"} {
		require.Contains(t, admin.Do(t, "CONFIG SET acllog-max-len "+wrong), "-ERR CONFIG SET failed")
	}
}

// fakeFile is an ACL file in memory.
type fakeFile struct {
	text         string
	load, save   error
	saves, loads int
}

func (f *fakeFile) Path() string { return "the-file" }

func (f *fakeFile) Load() (string, error) { f.loads++; return f.text, f.load }

func (f *fakeFile) Save(text string) error {
	f.saves++
	if f.save == nil {
		f.text = text
	}
	return f.save
}

func TestACLFile(t *testing.T) {
	s, f := newACLFileServer(t)
	admin, alice := s.Connect(), s.Connect()
	alice.Do(t, "AUTH alice x")
	require.Equal(t, "+OK\r\n", admin.Do(t, "ACL SETUSER bob on +get"))
	require.Equal(t, "+OK\r\n", admin.Do(t, "ACL SETUSER bob nopass"))
	bob := s.Connect()
	require.Equal(t, "+OK\r\n", bob.Do(t, "AUTH bob x"))
	require.Equal(t, "+OK\r\n", admin.Do(t, "ACL SAVE"))
	require.Equal(
		t,
		"user alice on nopass ~* resetchannels +@all\nuser bob on nopass resetchannels -@all +get\nuser default on nopass ~* &* +@all\n",
		f.text,
	)

	saved := f.text
	f.text = "user alice on\nuser alice off\nuser x +nosuch\n"
	require.Equal(
		t,
		"-ERR WARNING: Duplicate user 'alice' found on line 2. the-file:3: Error in applying operation '+nosuch': Unknown command or category name in ACL. "+
			"WARNING: ACL errors detected, no change to the previously active ACL rules was performed\r\n",
		admin.Do(t, "ACL LOAD"),
	)
	require.False(t, alice.IsDisconnected())
	require.Contains(t, admin.Do(t, "ACL USERS"), "bob")
	f.load = errors.New("opening file 'the-file': no such file or directory")
	require.Equal(t, "-ERR Error loading ACLs, opening file 'the-file': no such file or directory\r\n",
		admin.Do(t, "ACL LOAD"))

	f.text, f.load = strings.ReplaceAll(saved, "user bob", "user carol"), nil
	require.Equal(t, "+OK\r\n", admin.Do(t, "ACL LOAD"))
	require.False(t, alice.IsDisconnected(), "its user still exists")
	require.True(t, bob.IsDisconnected(), "its user does not exist any more")
	require.False(t, admin.Session.Closing())
	require.Equal(t, "*3\r\n$5\r\nalice\r\n$5\r\ncarol\r\n$7\r\ndefault\r\n", admin.Do(t, "ACL USERS"))
}

// newACLFileServer returns a server with an ACL file of two users, which it has loaded.
func newACLFileServer(t *testing.T) (*commandstest.Server, *fakeFile) {
	s, f := commandstest.New(t), &fakeFile{text: "user alice on nopass +@all ~*\nuser default on nopass ~* &* +@all\n"}
	s.Instance.Accounts.File = f
	require.NoError(t, s.Instance.Accounts.Configure("", nil))
	return s, f
}

// ACL LOAD disconnects the clients whose users do not exist any more, or have lost the right to a
// subscription. The new rules apply to the others.
func TestACLLoadAppliesToClients(t *testing.T) {
	s, f := newACLFileServer(t)
	admin, alice := s.Connect(), s.Connect()
	alice.Do(t, "AUTH alice x")
	admin.Do(t, "ACL SETUSER carol on nopass")
	own := s.Connect()
	own.Do(t, "AUTH carol x")
	admin.Do(t, "ACL SETUSER carol +acl")
	f.text = "user alice on nopass -@all +get ~x:* &new\n"
	listening := s.Connect()
	listening.Do(t, "AUTH alice x")
	require.Equal(t, "+OK\r\n", admin.Do(t, "ACL SETUSER alice +subscribe &*"))
	require.Contains(t, listening.Do(t, "SUBSCRIBE old"), "subscribe")
	require.Equal(t, "+OK\r\n", own.Do(t, "ACL LOAD"), "it must get the reply to its own call")
	require.True(t, own.Session.Closing(), "its user was deleted")
	require.True(t, listening.IsDisconnected(), "its user has lost the right to its subscription")
	require.False(t, alice.IsDisconnected())
	require.Equal(t, "-NOPERM No permissions to access a key\r\n", alice.Do(t, "GET y"), "the new rules must apply to it")
	require.Equal(t, "-NOPERM User alice has no permissions to run the 'set' command\r\n", alice.Do(t, "SET x:1 y"))
}

// ACL SAVE reports an error of the file. In a transaction, neither SAVE nor LOAD uses the file.
func TestACLFileErrors(t *testing.T) {
	s, f := newACLFileServer(t)
	admin := s.Connect()
	f.save = errors.New("no space")
	require.Contains(t, admin.Do(t, "ACL SAVE"), "-ERR There was an error trying to save the ACLs.")
	saves, loads := f.saves, f.loads
	admin.Do(t, "MULTI")
	admin.Do(t, "ACL SAVE")
	admin.Do(t, "ACL LOAD")
	require.Equal(t, "*2\r\n-"+string(access.ErrFileInMulti)+"\r\n-"+string(access.ErrFileInMulti)+"\r\n",
		admin.Do(t, "EXEC"))
	require.Equal(t, []int{saves, loads}, []int{f.saves, f.loads}, "a file was used while keys were locked")
}

// ACL LOAD replaces all users at once: a client that logs in meanwhile gets a user from before or
// from after it.
func TestACLLoadIsAtomic(t *testing.T) {
	s, f := commandstest.New(t), &fakeFile{text: "user alice on >pw +@all ~*\n"}
	s.Instance.Accounts.File = f
	require.NoError(t, s.Instance.Accounts.Configure("", nil))
	admin, done := s.Connect(), make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			admin.Session.Feed([]byte("ACL LOAD\r\n"))
			admin.Settle()
			admin.Read()
		}
	}()
	for loading := true; loading; {
		select {
		case <-done:
			loading = false
		default:
		}
		c := s.Connect()
		require.Equal(t, "+OK\r\n", c.Do(t, "AUTH alice pw"))
		c.Close()
	}
	require.Equal(t, strings.Repeat("+OK\r\n", 200), string(admin.Received))
}

func TestAccountsOfTheConfiguration(t *testing.T) {
	with := func(change func(*commands.Settings)) (*commandstest.Server, error) {
		return commandstest.NewWith(t, store.NewStillClock(commandstest.Start), change)
	}
	s, err := with(func(s *commands.Settings) {
		s.Access.Password, s.Access.Channels, s.Access.ACLLog, s.Access.Users = "pw", "allchannels", 7,
			[][]string{{"alice", "on", ">x", "+@all"}, {"bob"}}
	})
	require.NoError(t, err)
	c := s.Connect()
	require.Equal(t, "-NOAUTH Authentication required.\r\n", c.Do(t, "PING"))
	require.Equal(t, "+OK\r\n", c.Do(t, "AUTH pw"))
	list := c.Do(t, "ACL LIST")
	require.Contains(t, list, " &* +@all\r\n")
	require.Contains(t, list, "user bob off &* -@all\r\n")
	require.Contains(t, c.Do(t, "CONFIG GET acllog-max-len"), "$1\r\n7\r\n")
	for _, wrong := range []struct {
		users [][]string
		says  string
	}{
		{[][]string{{"a"}, {"b"}, {"a"}},
			"the user 'a': Duplicate user found. A user can only be defined once in config files"},
		{[][]string{{"default"}, {"default"}},
			"the user 'default': Duplicate user found. A user can only be defined once in config files"},
		{[][]string{{"a\x00"}}, "the user 'a\x00': Spaces not allowed in ACL usernames"},
		{[][]string{{"a", ">secret", "<secret2"}},
			"the user 'a': The password you are trying to remove from the user does not exist"},
		{[][]string{{"a", "+nosuch"}},
			"the user 'a': Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL"},
		{[][]string{{"a", "(+get"}}, "the user 'a': Unmatched parenthesis in acl selector starting at '(+get'."},
	} {
		_, err := with(func(s *commands.Settings) { s.Access.Users = wrong.users })
		require.EqualError(t, err, wrong.says)
	}
	closed, err := with(func(s *commands.Settings) { s.Access.Users = [][]string{{"default", "on", ">pw", "+get", "~*"}} })
	require.NoError(t, err)
	require.True(t, closed.Instance.NeedsPassword())
	d := closed.Connect()
	d.Do(t, "AUTH pw")
	require.Contains(t, d.Do(t, "SET a b"), "NOPERM")
}

func TestRenamedCommands(t *testing.T) {
	s := commandstest.New(t)
	long := strings.Repeat("z", 40)
	in := s.Instance
	require.NoError(t, in.Table.Rename("CONFIG", long))
	require.NoError(t, in.Table.Rename("flushall", ""))
	require.NoError(t, in.Table.Rename("get", "fetch"))
	require.NoError(t, in.Table.Rename("set", "get"))
	for from, to := range map[string]string{"nosuch": "x", "client|id": "x", "ping": "echo", "echo": "a|b",
		"flushall": "x", "ttl": strings.Repeat("x", 1025)} {
		require.Error(t, in.Table.Rename(from, to), "%s %s", from, to)
	}
	c := s.Connect()
	require.Contains(t, c.Do(t, "CONFIG GET port"), "-ERR unknown command")
	require.Contains(t, c.Do(t, strings.ToUpper(long)+" GET port"), "6379")
	require.Contains(t, c.Do(t, strings.ToUpper(long)[:32]+" GET port"), "-ERR unknown command")
	require.Contains(t, c.Do(t, "FLUSHALL"), "-ERR unknown command")
	require.Equal(t, "+OK\r\n", c.Do(t, "GET k v"))
	require.Equal(t, "$1\r\nv\r\n", c.Do(t, "FETCH k"))
	require.Contains(t, c.Do(t, "FETCH"), "arguments for 'get' command", "errors must name the original command")
	require.Equal(t, fmt.Sprintf(":%d\r\n", len(commands.All())-1), c.Do(t, "COMMAND COUNT"),
		"a command that is renamed to nothing must not be counted")
	require.NotContains(t, c.Do(t, "COMMAND LIST"), long, "the new name must not be listed")
	require.NotContains(t, c.Do(t, "COMMAND LIST"), "flushall")
	require.Equal(t, "*1\r\n*-1\r\n", strings.ReplaceAll(c.Do(t, "COMMAND INFO config|get"), "$-1", "*-1"))
	u := s.ConnectAs(t, "+get ~*")
	require.Equal(t, "$1\r\nv\r\n", u.Do(t, "FETCH k"), "rules must apply to the original name")
	require.Contains(t, u.Do(t, "GET k v"), "NOPERM User u has no permissions to run the 'set' command")
}

// Protected settings can be changed by the clients that --enable-protected-configs names.
func TestProtectedSettings(t *testing.T) {
	for _, c := range []struct {
		allowed string
		local   bool
		may     bool
	}{{"no", true, false}, {"local", true, true}, {"local", false, false}, {"yes", false, true}, {"", true, false}} {
		s, err := commandstest.NewWith(
			t,
			store.NewStillClock(commandstest.Start),
			func(s *commands.Settings) { s.Admin.Protected = c.allowed },
		)
		require.NoError(t, err)
		d := s.Connect()
		if !c.local {
			d.Session.Peer.Remote = "192.0.2.1:5"
		}
		said := d.Do(t, "CONFIG SET dbfilename x")
		if c.may {
			assert.Equal(t, "+OK\r\n", said)
		} else {
			assert.Equal(t, "-ERR CONFIG SET failed (possibly related to argument 'dbfilename') - can't set protected config\r\n", said)
			assert.Equal(t, "dump.rdb", s.Options.Show("dbfilename"))
		}
	}
}

// Checking the calls of a restricted user allocates nothing.
func TestChecksDoNotAllocate(t *testing.T) {
	s := commandstest.New(t)
	c := s.ConnectAs(t, "+cl.throttle +cl.all %RW~a* ~user:* ~b*")
	call := []byte(strings.Repeat("CL.THROTTLE user:1 1000000 1000000 1 1\r\n", 32))
	run := func() {
		c.Session.Feed(call)
		c.Session.Sent()
	}
	run()
	require.Less(t, testing.AllocsPerRun(100, run), 1.0)
	require.True(t, c.Session.ChecksRights())
}

// Calls of a user that may do everything are not checked one by one. Whether the user may is looked
// up once a turn.
func TestUnrestrictedUserIsNotChecked(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	c.Do(t, "PING")
	require.False(t, c.Session.ChecksRights())
	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET requirepass x"))
	c.Do(t, "PING")
	require.False(t, c.Session.ChecksRights(), "it has logged in")
	d := s.Connect()
	d.Do(t, "PING")
	require.True(t, d.Session.ChecksRights())
	d.Do(t, "AUTH x")
	require.False(t, d.Session.ChecksRights())
	c.Do(t, "ACL SETUSER default -debug")
	d.Do(t, "PING")
	require.True(t, d.Session.ChecksRights())
}

// If a call of a transaction revokes rights, the next calls of the transaction are checked.
func TestRightsRevokedInTransaction(t *testing.T) {
	c := commandstest.New(t).Connect()
	c.Do(t, "MULTI")
	c.Do(t, "ACL SETUSER default -get")
	c.Do(t, "GET x")
	require.NoError(t, c.Send(commandstest.Encode([]string{"EXEC"})))
	for c.Session.HasUnanswered() {
		<-c.Woken
		c.Session.Resume()
	}
	require.Contains(t, c.Output(), "-NOPERM ACLs rules changed")
}
