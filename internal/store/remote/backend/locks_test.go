package backend

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/combine"
)

// deaf is a TLS connection whose other side does not read the notice that it is closed.
type deaf struct {
	net.Conn
	closed chan struct{}
}

func (d deaf) Close() error {
	<-d.closed
	return nil
}

// A socket is closed at once, whether or not the other side of TLS listens.
func TestSocketsAreClosedAtOnce(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	d := deaf{near, make(chan struct{})}
	require.NoError(t, (&socket{Conn: d, raw: near}).Close())
	_, err := far.Read(make([]byte, 1))
	require.Error(t, err)
}

// Calls that the machine makes while it is locked take no lock of the backend.
func TestTheMachineDoesNotWaitForTheBackend(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	s.Backend.mu.Lock()
	defer s.Backend.mu.Unlock()
	assert.NotZero(t, s.Offset(s.Primary("k")))
}

// Each command asks for the primaries of a cluster, so they are not collected anew each time.
func TestPrimariesOfACluster(t *testing.T) {
	address := Address{Kind: Cluster, Nodes: []string{"127.0.0.1:1"}}
	b, err := Open(Config{Address: address, Now: func() int64 { return 1 }})
	require.NoError(t, err)
	b.Close()
	assert.Empty(t, b.Primaries())
	c := b.topology.(*cluster)
	c.moved(5, "a:1")
	c.moved(16000, "b:1")
	c.moved(7, "a:1")
	assert.Equal(t, []combine.Primary{b.numberOf("a:1"), b.numberOf("b:1")}, b.Primaries())
	c.moved(5, "b:1")
	c.moved(7, "b:1")
	assert.Equal(t, []combine.Primary{b.numberOf("b:1")}, b.Primaries())
	assert.Zero(t, testing.AllocsPerRun(100, func() { b.Offset(b.Primaries()[0]) }))
}

// A backend can be closed while a question about all keys is under way and another waits. Questions
// give up with their context.
func TestCloseAmidQuestions(t *testing.T) {
	s := newStand(t)
	asked := make(chan error, 2)
	s.set("dbsize", "") // no reply
	cut := &asker{turn: make(chan struct{}, 1)}
	cut.turn <- struct{}{}
	s.Backend.mu.Lock()
	s.askers[place{0, 7, askers}] = cut // its question is under way
	s.Backend.mu.Unlock()
	short, cancel := context.WithCancel(t.Context())
	go func() { _, err := s.askOne(short, 0, 7, "dbsize"); asked <- err }()
	cancel()
	require.ErrorIs(t, <-asked, combine.ErrDown)
	go func() { _, err := s.askOne(t.Context(), 0, 7, "dbsize"); asked <- err }()
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	require.ErrorIs(t, <-asked, combine.ErrDown, "Close ends it")
	for {
		s.Backend.mu.Lock() // the lock is free, although Close waits
		done := s.connections == nil
		s.Backend.mu.Unlock()
		if done {
			break
		}
		runtime.Gosched()
	}
	<-cut.turn
	<-closed
}

// A node of a cluster that has no slot yet can be connected to, because ASK sends keys there.
func TestNewNodesOfACluster(t *testing.T) {
	f := newFake(t)
	f.set("set", "-MOVED 0 "+f.addr+"\r\n")
	f.set("cluster slots", "-LOADING\r\n")
	b, err := Open(Config{Address: Address{Kind: Cluster, Nodes: []string{f.addr}}, Now: func() int64 { return 1 },
		Silence: time.Minute})
	require.NoError(t, err)
	defer b.Close()
	batch := combine.Batch{Primary: b.numberOf(f.addr), Connect: true}
	b.Do(&batch)
	assert.NoError(t, b.Trouble(batch.Primary))
	assert.False(t, batch.Failed)
	assert.False(t, b.About(batch.Primary).Native, "it is not known")
}

// Redis 6.2 puts the place in the script before errors of commands in scripts.
func TestErrorsOfCommandsInScripts(t *testing.T) {
	for reply, want := range map[string]struct {
		status combine.Status
		words  string
	}{
		"-@user_script: 41: -READONLY You can't write\r\n":  {combine.Later, ""},
		"-@user_script: 41: -OOM command not allowed  \r\n": {combine.Refused, "OOM command not allowed"},
		"-@user_script: 41: Wrong number of args\r\n":       {combine.Refused, "Wrong number of args"},
		"-@user_script: x: -OOM\r\n":                        {combine.Refused, "@user_script: x: -OOM"},
		"-WRONGTYPE Operation\r\n":                          {combine.Refused, "WRONGTYPE Operation"},
	} {
		s := newStand(t)
		s.set("evalsha", reply)
		require.True(t, s.connect())
		r := &combine.Request{Kind: combine.Read, Parts: []combine.Part{{Key: "a"}, {Key: "b"}}}
		s.Do(&combine.Batch{Requests: []*combine.Request{r}})
		assert.Equal(t, combine.Reply{Status: want.status, Error: want.words}, r.Reply, reply)
	}
}
