package server

import (
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// A client may close its direction and still want its replies, as nc does. gnet closes the whole connection when it reads the
// end of the input, which is too soon for a session that waits for a Slow command. So its descriptor is duplicated,
// and a goroutine of its own sends what is still owed.

// lingerFor bounds how long a client may take to receive what it is owed.
const lingerFor = 30 * time.Second

func (l *loops) lingerOn(k *link, c gnet.Conn) {
	conn, err := duplicate(c)
	if err != nil {
		l.log.Warn("a half-closed connection loses its last replies", "peer", k.remote, "error", err)
		k.session.Close()
		return
	}
	go k.linger(conn)
}

func duplicate(c gnet.Conn) (net.Conn, error) {
	fd, err := c.Dup()
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "half-closed connection")
	defer file.Close() // FileConn duplicates it once more
	return net.FileConn(file)
}

func (k *link) linger(conn net.Conn) {
	defer conn.Close()
	defer k.session.Close()
	woken := make(chan struct{}, 1)
	k.wokenBy(func() {
		select {
		case woken <- struct{}{}:
		default: // one is waiting
		}
	})
	defer k.wokenBy(nil)
	for {
		k.session.Resume() // first of all for what came before there was somebody to wake
		timeout := time.AfterFunc(lingerFor, func() { conn.Close() })
		_, err := conn.Write(k.session.Output())
		timeout.Stop()
		k.session.Sent()
		if err != nil || k.session.Closing() || !k.session.Owing() {
			return
		}
		<-woken
	}
}
