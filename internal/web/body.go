package web

import (
	"io"
	"net/http"
)

// arriving returns the body of a request, and a function to be called when the handler has ended. Until the
// body has arrived, the server is waiting for the peer, and the connection makes room for others: a header with
// a length costs a peer nothing, and neither a handler that refuses the request nor its response ends it,
// because net/http reads the body before it writes that, or before it closes the connection.
//
// What net/http reads does not pass through the returned body. So conn.arriving is true while the body may be
// awaited: until it has been read here, or the handler responds, and again when the handler has ended, until the
// next request.
//
// A connection with HTTP/2 is not told apart by its requests. There, a response does not wait for a body.
func arriving(r *http.Request) (body io.ReadCloser, handled func()) {
	c := connOf(r)
	if c == nil || r.ProtoMajor != 1 {
		return r.Body, func() {}
	}
	c.memory.parsed()
	c.startWaiting()
	c.arriving.Store(true)
	c.handling.Store(true)
	b := &arrivingBody{r.Body, c, false}
	return b, b.handled
}

type arrivingBody struct {
	io.ReadCloser
	conn *conn
	read bool // to its end
}

// Read implements io.Reader. What is written meanwhile is "100 Continue", and not the response.
func (b *arrivingBody) Read(p []byte) (int, error) {
	b.conn.handling.Store(false)
	n, err := b.ReadCloser.Read(p)
	b.conn.handling.Store(true)
	if err != nil {
		b.read = true
		b.conn.arriving.Store(false)
		b.conn.stopWaiting()
	}
	return n, err
}

func (b *arrivingBody) handled() {
	b.conn.handling.Store(false)
	b.conn.arriving.Store(!b.read)
}

// ReadBody reads the body of a request. It takes memory as bytes arrive, twice as many at most: the length that a
// peer announces costs the peer nothing. take returns an error if there is no memory.
func ReadBody(r *http.Request, take func(bytes int64) error) ([]byte, error) {
	const first = 512
	if err := take(first); err != nil {
		return nil, err
	}
	body := make([]byte, 0, first)
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body) < cap(body) {
			continue
		}
		grown := min(2*cap(body), MaxBody+1) // with room for reading the end
		if err := take(int64(grown - cap(body))); err != nil {
			return nil, err
		}
		body = append(make([]byte, 0, grown), body...)
	}
}
