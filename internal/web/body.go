package web

import (
	"io"
	"net/http"
)

// arriving returns the body of a request. Until it has arrived, the server is waiting for the peer, and the
// connection makes room for others: a header with a length costs a peer nothing, and neither a handler that
// refuses the request nor its response ends it, because net/http reads the body before it writes that.
//
// A connection with HTTP/2 is not told apart by its requests. There, a response does not wait for a body.
func arriving(r *http.Request) io.ReadCloser {
	c := connOf(r)
	if c == nil || r.ProtoMajor != 1 {
		return r.Body
	}
	c.memory.parsed()
	c.startWaiting()
	c.arriving.Store(true)
	return &arrivingBody{r.Body, c}
}

type arrivingBody struct {
	io.ReadCloser
	conn *conn
}

func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.conn.arriving.Store(false)
		b.conn.stopWaiting()
	}
	return n, err
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
