package web

import (
	"io"
	"net"
	"net/http"
)

// arriving returns the body of a request. Until it has arrived, the server is waiting for the peer, and the
// connection makes room for others: a header with a length costs a peer nothing, and neither a handler that
// refuses the request nor its response ends it, because net/http reads the body before it writes that.
//
// A connection with HTTP/2 is not told apart by its requests. There, a response does not wait for a body.
func (s *Server) arriving(r *http.Request) io.ReadCloser {
	conn, known := r.Context().Value(connKey{}).(net.Conn)
	if !known || r.ProtoMajor != 1 {
		return r.Body
	}
	s.startWaiting(conn, true)
	return &arrivingBody{r.Body, s, conn}
}

type arrivingBody struct {
	io.ReadCloser
	server *Server
	conn   net.Conn
}

func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.server.stopWaiting(b.conn)
	}
	return n, err
}
