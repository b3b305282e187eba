package transaction_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/transcript"
)

// A transaction has the same effects and replies when it is executed outside the event loop.
func TestConversationsWithBackgroundTransactions(t *testing.T) {
	transcript.Check(t, commandstest.Conversations(t), func(t *testing.T) transcript.Stage {
		s := commandstest.New(t)
		s.Instance.MaxTurnTransaction = -1
		return s
	}, false)
}

// inTransaction returns MULTI, the calls and EXEC.
func inTransaction(calls ...[]byte) []byte {
	return slices.Concat([]byte("MULTI\r\n"), slices.Concat(calls...), []byte("EXEC\r\n"))
}

// repeatCall returns a call n times.
func repeatCall(n int, words ...string) []byte { return slices.Repeat(commandstest.Encode(words), n) }

// The cost of a transaction depends on the bytes that its calls touch. If it is more than a turn's
// worth, the transaction is executed outside the event loop.
func TestTransactionCostDependsOnBytesTouched(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	commandstest.CountReplies(
		c,
		t,
		commandstest.Encode([]string{"SET", "big", strings.Repeat("x", commandstest.Mebibyte)}),
		"+OK",
	)
	before := s.CopiedBytes()
	n, _ := commandstest.CountReplies(c, t, inTransaction(repeatCall(20_000, "STRLEN", "big")), ":1048576\r\n")
	require.Equal(t, 20_000, n)
	n, _ = commandstest.CountReplies(c, t, inTransaction(repeatCall(20_000, "GETRANGE", "big", "7", "8")), "$2\r\nxx\r\n")
	require.Equal(t, 20_000, n)
	require.Equal(t, int64(40_000), s.CopiedBytes()-before)
}

// A transaction that would lock its keys for too long is refused before its first call is made.
func TestTooExpensiveTransactionsAreRefused(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	commandstest.CountReplies(
		c,
		t,
		commandstest.Encode([]string{"SET", "big", strings.Repeat("x", commandstest.Mebibyte)}),
		"+OK",
	)
	for range 80_000 {
		c.Session.Feed(repeatCall(1, "CL.SLIDINGLOG", "log", "100000", "60", "1"))
		c.Session.Sent()
		s.Clock.Advance(1)
	}
	nines := strings.Repeat("9", 4900)
	for _, flood := range []struct {
		name string
		call []byte
		most int // calls that are accepted
	}{
		{"COPY of 1 MiB", repeatCall(1, "COPY", "big", "other", "REPLACE"), 100},
		{"RENAME of 1 MiB", append(repeatCall(1, "RENAME", "big", "other"), repeatCall(1, "RENAME", "other", "big")...), 100},
		{"COPY of a log", repeatCall(1, "COPY", "log", "other", "REPLACE"), 100},
		{"SETRANGE of 1 MiB", repeatCall(1, "SETRANGE", "new", "1048000", "x"), 100},
		{"COPY of what SETRANGE makes",
			append(repeatCall(1, "SETRANGE", "new", "1048000", "x"), repeatCall(9, "COPY", "new", "other", "REPLACE")...), 100},
		{"INCRBYFLOAT of 1e4931", repeatCall(1, "INCRBYFLOAT", "float", "1e4931"), 1000},
		{"INCREX of 1e4931", repeatCall(1, "INCREX", "float", "BYFLOAT", "1e4931"), 1000},
		{"INCRBYFLOAT of many digits",
			append(repeatCall(1, "SET", "float", nines), repeatCall(9, "INCRBYFLOAT", "float", "1")...),
			1000},
		{"RANDOMKEY", repeatCall(1, "RANDOMKEY"), 1000},
		{"INFO", repeatCall(1, "INFO"), 20},
		{"CLIENT SETNAME", repeatCall(1, "CLIENT", "SETNAME", "x"), 20},
	} {
		made, last := commandstest.CountReplies(c, t, inTransaction(slices.Repeat(flood.call, 3)), "-EXECABORT")
		require.Zero(t, made, "%s: %s", flood.name, last)
		commandstest.CountReplies(c, t, commandstest.Encode([]string{"DEL", "sentinel"}), "")
		input := inTransaction(repeatCall(1, "SET", "sentinel", "x"), slices.Repeat(flood.call, flood.most))
		refused, last := commandstest.CountReplies(c, t, input,
			"-EXECABORT Transaction discarded because it would keep others waiting for too long")
		require.Equal(t, 1, refused, "%s: %s", flood.name, last)
		require.Equal(t, "$-1\r\n", c.Do(t, "GET sentinel"), flood.name)
	}
}

// Ordinary transactions of many calls are executed.
func TestLongTransactionsAreMade(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	var sets, gets []byte
	for i := range 40_000 {
		sets = append(sets, commandstest.Encode([]string{"SET", fmt.Sprint("k", i), "value"})...)
		gets = append(gets, commandstest.Encode([]string{"GET", fmt.Sprint("k", i)})...)
	}
	n, last := commandstest.CountReplies(c, t, inTransaction(sets), "+OK\r\n")
	require.Equal(t, 1+40_000, n, last)
	n, last = commandstest.CountReplies(c, t, inTransaction(gets), "$5\r\nvalue\r\n")
	require.Equal(t, 40_000, n, last)
	n, last = commandstest.CountReplies(
		c,
		t,
		inTransaction(repeatCall(10_000, "CL.THROTTLE", "t", "10", "1", "60")),
		"*5\r\n",
	)
	require.Equal(t, 10_000, n, last)
	n, last = commandstest.CountReplies(
		c,
		t,
		inTransaction(repeatCall(3000, "SELECT", "3"), repeatCall(1, "SET", "there", "x")),
		"+OK\r\n",
	)
	require.Equal(t, 1+3001, n, last)
	require.Equal(t, "$1\r\nx\r\n", c.Do(t, "GET there"))
	require.Contains(t, c.Do(t, "CLIENT INFO"), " db=3 ")
}

// When the replies of a transaction exceed the limit, its further calls are not made.
func TestTransactionStopsAtReplyLimit(t *testing.T) {
	c := commandstest.New(t).Connect()
	const keys = 1100
	for i := range keys {
		commandstest.CountReplies(
			c,
			t,
			commandstest.Encode([]string{"SET", strings.Repeat("long", 16_000) + fmt.Sprint(i), "x"}),
			"+OK",
		)
	}
	input := inTransaction(repeatCall(1, "KEYS", "*"), repeatCall(2, "SET", "after", "x"))
	n, last := commandstest.CountReplies(
		c,
		t,
		input,
		"-ERR not made: the replies of the transaction are longer than 64 MiB\r\n",
	)
	require.Equal(t, 2, n, last)
	require.Equal(t, "$-1\r\n", c.Do(t, "GET after"))
}

// A call of a million words after MULTI is refused because of their number, without allocating the
// words.
func TestTooManyQueuedWordsAreRefusedWithoutParsing(t *testing.T) {
	c := commandstest.New(t).Connect()
	input := commandstest.Encode(append([]string{"DEL"}, slices.Repeat([]string{"k"}, commandstest.Mebibyte-1)...))
	require.Equal(t, "+OK\r\n", c.Do(t, "MULTI"))
	pieces := slices.Collect(slices.Chunk(input, 16<<10))
	for _, piece := range pieces[:len(pieces)-1] {
		require.NoError(t, c.Send(piece))
	}
	bytes := commandstest.Allocated(func() {
		if len(pieces) > 0 {
			require.NoError(t, c.Send(pieces[len(pieces)-1]))
			pieces = nil
		}
	})
	require.Less(t, bytes, 100_000)
	require.Equal(t, "-ERR too many words are queued for one transaction\r\n", c.Output())
	require.Equal(t, "-EXECABORT Transaction discarded because of previous errors.\r\n", c.Do(t, "EXEC"))
}

// A long call that fits is queued, and its words are found outside the event loop.
func TestALongCallIsQueued(t *testing.T) {
	c := commandstest.New(t).Connect()
	words := []string{"DEL"}
	for i := range 100_000 {
		words = append(words, fmt.Sprint("k", i))
	}
	require.Equal(t, "+OK\r\n", c.Do(t, "SET k99999 x"))
	n, last := commandstest.CountReplies(
		c,
		t,
		inTransaction(commandstest.Encode(words), repeatCall(1, "PING")),
		"*2\r\n:1\r\n+PONG\r\n",
	)
	require.Equal(t, 1, n, last)
}

// Clients connect and disconnect while transactions run outside the event loop, on keys that other
// clients watch and change. Each transaction is executed as a whole or not at all.
func TestConcurrentBackgroundTransactions(t *testing.T) {
	s := commandstest.New(t)
	s.Instance.MaxTurnTransaction = -1
	var all sync.WaitGroup
	const clients, rounds = 4, 40
	for n := range clients {
		all.Go(func() {
			for i := range rounds {
				c := s.Connect()
				_ = c.Send(slices.Concat(repeatCall(1, "WATCH", "k"),
					inTransaction(repeatCall(20, "INCR", "k"), repeatCall(1, "PUBLISH", "x", "y"))))
				if i%2 == 0 {
					c.Session.Feed(inTransaction(repeatCall(20, "DECR", "k"))) // and disconnects at once
				}
				c.Session.Close()
				_ = n
			}
		})
	}
	all.Wait()
	for s.Instance.Background.Busy.Load() > 0 {
		s.Instance.Background.Acquire(context.Background())
		s.Instance.Background.Release()
	}
	value := s.Connect().Do(t, "GET k")
	var length, left int
	_, err := fmt.Sscanf(value, "$%d\r\n%d\r\n", &length, &left)
	require.NoError(t, err, value)
	require.Zero(t, left%20, "a transaction was made in part")
}

// KEYS in a transaction, whose keys are locked, does not wait for another client's long reply.
func TestKeysInTransactionDoesNotWaitForLongReplies(t *testing.T) {
	s := commandstest.New(t)
	s.Instance.MaxTurnTransaction = -1
	c := s.Connect()
	const some = 5000
	for n := range some {
		c.Do(t, fmt.Sprintf("SET %0100d x", n))
	}
	require.True(t, s.Instance.Background.AcquireLong(t.Context())) // as a call of another client does
	n, _ := commandstest.CountReplies(c, t, inTransaction([]byte("KEYS *\r\n")), "$100\r\n")
	require.Equal(t, some, n)
}

// The estimate of a transaction's cost cannot overflow, and a SELECT that is refused leaves the
// transaction in a database whose keys are locked.
func TestHostileTransactions(t *testing.T) {
	words := func(line string) (list [][]byte) {
		for _, word := range strings.Fields(line) {
			list = append(list, []byte(word))
		}
		return list
	}
	table := commandstest.TableOf()
	row := table.Lookup([]byte("getrange"))
	for line, size := range map[string]int{
		"GETRANGE k 0 9223372036854775807":   commandstest.Mebibyte,
		"GETRANGE k -9223372036854775808 -1": commandstest.Mebibyte,
		"GETRANGE k 7 8":                     1, "GETRANGE k 8 7": 0, "GETRANGE k 5 -1": commandstest.Mebibyte,
	} {
		require.Equal(t, size, command.ReadBytes(row, words(line), commandstest.Mebibyte), line)
	}

	s := commandstest.New(t)
	c := s.Connect()
	require.Equal(t, "+OK\r\n", c.Do(t, "ACL SETUSER b on >pw +@all -select ~*"))
	c.Do(t, "MULTI")
	c.Do(t, "AUTH b pw")
	c.Do(t, "SELECT 1")
	c.Do(t, "SET k v")
	require.Contains(t, c.Do(t, "EXEC"), "NOPERM")
	require.False(t, c.Session.Closing())
	require.Equal(t, "$1\r\nv\r\n", c.Do(t, "GET k"))
}

// A pattern that takes long to match cannot keep the keys of a transaction locked for long.
func TestPatternsInATransactionAreBounded(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	for n := range 50 {
		commandstest.CountReplies(
			c,
			t,
			commandstest.Encode([]string{"SET", fmt.Sprint(n) + strings.Repeat("a", 60_000), "x"}),
			"+OK",
		)
	}
	slow := []string{"SCAN", "0", "MATCH", "*" + strings.Repeat("a", 1000) + "b", "COUNT", "1000"}
	n, last := commandstest.CountReplies(
		c,
		t,
		inTransaction(repeatCall(10, slow...)),
		"-ERR the patterns take too long to match\r\n",
	)
	require.Equal(t, 10, n, last)
	n, _ = commandstest.CountReplies(
		c,
		t,
		inTransaction(repeatCall(2, "SCAN", "0", "MATCH", "1a*", "COUNT", "1000")),
		"$60001\r\n1",
	)
	require.Equal(t, 2, n)
}
