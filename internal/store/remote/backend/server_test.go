package backend

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/combine"
)

// fake is a server of a few lines, whose clock and replies a test sets.
type fake struct {
	addr  string
	clock atomic.Int64 // Unix nanoseconds

	mu      sync.Mutex
	replies map[string]string // by the first word of a command
	calls   map[string]int
	before  func() // called before a reply; nil for none
}

// newFake starts a server that knows SET IFEQ.
func newFake(t *testing.T) *fake {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{addr: l.Addr().String(), calls: map[string]int{}, replies: map[string]string{
		"info": bulk("redis_version:9.9.9\r\nrun_id:first\r\nmaxmemory_policy:noeviction\r\n"),
		"set":  "$-1\r\n", "get": "$1\r\nv\r\n", "script": bulk("digest"),
	}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return f
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// serve answers calls until the connection ends. It cuts the connection after a reply without an end.
func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		words, err := readCall(in)
		if err != nil {
			return
		}
		reply := f.reply(strings.ToLower(words[0]))
		if words[0] == "cluster" || words[0] == "sentinel" {
			reply = f.reply(words[0] + " " + words[1])
		}
		if _, err := io.WriteString(conn, reply); err != nil || !strings.HasSuffix(reply, "\r\n") {
			return
		}
	}
}

func (f *fake) reply(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[name]++
	if f.before != nil {
		f.before()
	}
	reply, known := f.replies[name]
	switch {
	case known:
		return reply
	case name == "time":
		at := f.clock.Load()
		return "*2\r\n" + bulk(strconv.FormatInt(at/1e9, 10)) + bulk(strconv.FormatInt(at%1e9/1e3, 10))
	}
	return "-ERR unknown command\r\n"
}

func (f *fake) set(name, reply string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[name] = reply
}

func (f *fake) called(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func readCall(in *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	count, err := number()
	words := make([]string, count)
	for i := range words {
		length, err := number()
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:length])
	}
	return words, err
}

// stand is a backend of a fake server, with a clock that only a test moves.
type stand struct {
	*Backend
	*fake
	now atomic.Int64
	log bytes.Buffer
}

func newStand(t *testing.T) *stand {
	s := &stand{fake: newFake(t)}
	s.now.Store(1)
	s.clock.Store(1_000_000_001_000)
	b, err := Open(Config{Address: Address{Nodes: []string{s.addr}}, Now: s.now.Load, Silence: time.Minute,
		Log: slog.New(slog.NewTextHandler(&s.log, nil))})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	s.Backend = b
	return s
}

func (s *stand) connect() bool {
	batch := combine.Batch{Connect: true}
	s.Do(&batch)
	return !batch.Failed
}

// get sends a request, and returns the reply and whether the connection has failed.
func (s *stand) get() (combine.Reply, bool) {
	r := &combine.Request{Kind: combine.Read, Parts: []combine.Part{{Key: "k"}}}
	batch := combine.Batch{Requests: []*combine.Request{r}}
	s.Do(&batch)
	return r.Reply, batch.Failed
}

// The offset is measured once a second, in pipelines that are sent anyway.
func TestOffsetIsMeasuredOnceASecond(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	const second = int64(time.Second)
	first := s.called("time")
	assert.Equal(t, int64(1_000_000_000_999), s.Offset(0))
	for range 3 {
		s.get()
	}
	assert.Equal(t, first, s.called("time"), "no time has passed")
	s.now.Add(second)
	s.clock.Add(second + 5_000_000)
	s.get()
	s.get()
	assert.Equal(t, first+1, s.called("time"))
	assert.Equal(t, int64(1_000_005_000_999), s.Offset(0))
	assert.Zero(t, s.ClockJumps(0))

	s.now.Add(second)
	s.clock.Add(-3600 * second)
	s.get()
	assert.Equal(t, int64(1), s.ClockJumps(0), "it was set")
	assert.Equal(t, int64(1_000_005_000_999)-3601*second, s.Offset(0))
	assert.Contains(t, s.log.String(), "the clock of the server was set")
	assert.Contains(t, s.log.String(), "milliseconds=-3601000")
}

// After a pause, the clock is read before anything is sent. If the clock has changed, decisions that
// were made by it are not sent.
func TestClockAfterAPause(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	for _, line := range []struct {
		pause, drift int64
		status       combine.Status
		reads        int
	}{
		{stale, 5_000_000, combine.Done, 1}, // read with the request
		{stale + 1, 0, combine.Done, 1},     // read before it
		{stale + 1, 1_000_000, combine.Done, 1},
		{stale + 1, 1_001_000, combine.Unsent, 1},
		{0, 0, combine.Done, 0}, // decided again
		{stale + 1, -int64(time.Hour), combine.Unsent, 1},
	} {
		before, gets := s.called("time"), s.called("get")
		s.now.Add(line.pause)
		s.clock.Add(line.pause + line.drift)
		reply, failed := s.get()
		assert.False(t, failed)
		assert.Equal(t, line.status, reply.Status, "%+v", line)
		assert.Equal(t, before+line.reads, s.called("time"), "%+v", line)
		assert.Equal(t, line.status == combine.Done, s.called("get") > gets)
	}
	assert.Equal(t, int64(1), s.ClockJumps(0))
}

// Another process behind the same address has another clock, which is not a jump.
func TestClockOfAnotherServer(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	s.set("info", bulk("redis_version:9.9.9\r\nrun_id:second\r\nmaxmemory_policy:noeviction\r\n"))
	s.clock.Add(-int64(time.Hour))
	require.True(t, s.connect())
	assert.Zero(t, s.ClockJumps(0))
	assert.Equal(t, 1_000_000_000_999-int64(time.Hour), s.Offset(0))
	assert.Equal(t, "redis 9.9.9", s.About(0).Version)
}

// Servers that cannot be used are not connected to; the reason is logged once.
func TestUnusableServers(t *testing.T) {
	for reply, why := range map[string]string{
		"-LOADING Redis is loading\r\n": "LOADING", "-BUSY Redis is busy\r\n": "BUSY", "-MASTERDOWN Link\r\n": "MASTERDOWN",
		"-CLUSTERDOWN The cluster\r\n": "CLUSTERDOWN", "-READONLY You can't\r\n": "is a replica",
		"-NOPERM no\r\n": "lacks a right", "-MOVED 1 a:1\r\n": "redis+cluster://",
	} {
		s := newStand(t)
		s.set("set", reply)
		assert.False(t, s.connect(), reply)
		assert.False(t, s.connect(), reply)
		assert.ErrorContains(t, s.Trouble(0), why)
		assert.Equal(t, 1, strings.Count(s.log.String(), "no connection"), s.log.String())
		s.set("set", "-ERR syntax error\r\n")
		assert.True(t, s.connect())
		assert.NoError(t, s.Trouble(0))
		assert.False(t, s.About(0).Native)
		assert.Contains(t, s.log.String(), "connected again")
	}
}

// Replies to a request, and the status that they give it.
func TestReplies(t *testing.T) {
	for reply, want := range map[string]struct {
		status combine.Status
		failed bool
	}{
		"$1\r\nv\r\n":             {combine.Done, false},
		"-OOM command\r\n":        {combine.Refused, false},
		"-LOADING x\r\n":          {combine.Later, false},
		"-TRYAGAIN x\r\n":         {combine.Later, false},
		"-READONLY x\r\n":         {combine.Later, true}, // the next connection may reach the primary
		"-NOSCRIPT x\r\n":         {combine.Redirected, false},
		"-MOVED 1 a:1\r\n":        {combine.Refused, false}, // the URL does not say that this is a cluster
		"not a reply\r\n":         {combine.Unknown, true},
		"$5\r\nto":                {combine.Unknown, true},
		"-ERR anything else \r\n": {combine.Refused, false},
	} {
		s := newStand(t)
		require.True(t, s.connect())
		s.set("get", reply)
		got, failed := s.get()
		assert.Equal(t, want.status, got.Status, reply)
		assert.Equal(t, want.failed, failed, reply)
	}
}

// A node that is cut off from the others is not believed about slots, unless all nodes that answer
// are cut off.
func TestNodeThatIsCutOff(t *testing.T) {
	slots := func(f *fake) string {
		host, port, _ := net.SplitHostPort(f.addr)
		return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n" + bulk(host) + ":" + port + "\r\n" + bulk("id")
	}
	old, fresh := newFake(t), newFake(t)
	old.set("cluster slots", slots(old))
	old.set("cluster info", bulk("cluster_state:fail\r\n"))
	fresh.set("cluster slots", slots(fresh))
	fresh.set("cluster info", "-NOPERM no\r\n")
	b, err := Open(Config{Address: Address{Kind: Cluster, Nodes: []string{old.addr, fresh.addr}},
		Now: func() int64 { return 1 }, Silence: time.Minute})
	require.NoError(t, err)
	b.Close() // b reads no slots by itself any more
	c := b.topology.(*cluster)
	for range 5 {
		require.NoError(t, c.read(t.Context()))
		assert.Equal(t, fresh.addr, b.Where(b.Primary("k")))
	}
	fresh.set("cluster slots", "-LOADING\r\n")
	require.NoError(t, c.read(t.Context()))
	assert.Equal(t, old.addr, b.Where(b.Primary("k")))
	old.set("cluster slots", "*0\r\n")
	assert.ErrorContains(t, c.read(t.Context()), "knows no slots")
	assert.Equal(t, old.addr, b.Where(b.Primary("k")), "what was known stays")
}

// A server that does not load scripts refuses requests that need one, in its own words.
func TestScriptsAreRefused(t *testing.T) {
	s := newStand(t)
	s.set("script", "-NOPERM this user\r\n")
	s.set("evalsha", "-NOSCRIPT No matching script\r\n")
	require.True(t, s.connect())
	r := &combine.Request{Kind: combine.Read, Parts: []combine.Part{{Key: "a"}, {Key: "b"}}}
	for range 2 {
		s.Do(&combine.Batch{Requests: []*combine.Request{r}})
		assert.Equal(t, combine.Reply{Status: combine.Refused, Error: "NOPERM this user"}, r.Reply)
	}
}
