package server

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

func newServer(t *testing.T) *Server {
	data := memory.New(memory.Options{})
	t.Cleanup(func() { data.Close() })
	return newServerOn(t, EventLoop, data, func(*commands.Settings) {})
}

// newServerOn returns a server with a transport, which has one event loop.
func newServerOn(
	t *testing.T, transport Transport, data store.Store, change func(*commands.Settings),
) *Server {
	ofCommands, settings := commands.NewSettings(), NewSettings()
	change(ofCommands)
	instance, err := commands.New(commands.Config{Store: data, Settings: ofCommands})
	require.NoError(t, err)
	settings.Transport, settings.IOThreads = string(transport), 1
	s, err := New(instance, Config{Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	return s
}

func ping(t *testing.T, conn net.Conn) {
	_, err := conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	reply := make([]byte, len("+PONG\r\n"))
	_, err = io.ReadFull(conn, reply)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(reply))
}

// callerStore is a store that calls onSetCaller when a session sets the caller of its view. A
// session does so when it is opened.
type callerStore struct {
	store.Store
	onSetCaller func()
}

func (s *callerStore) View() store.View { return callerView{s.Store.View(), s} }

type callerView struct {
	store.View
	of *callerStore
}

func (v callerView) SetCaller(id int64) {
	v.View.SetCaller(id)
	if v.of.onSetCaller != nil {
		v.of.onSetCaller()
	}
}
