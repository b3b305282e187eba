package page

import (
	"context"

	"cellserver/internal/client"
	"cellserver/internal/session"
)

// caller makes calls for a request or a feed.
type caller struct {
	*session.Caller
	instance *session.Instance
	calls    session.Calls
}

// newCaller opens a session for a connection with these addresses, which CLIENT LIST shows, and whose certificate
// may name a user.
func newCaller(in *session.Instance, remote, local, named string) *caller {
	return &caller{instance: in,
		Caller: in.OpenCaller(client.Peer{Remote: remote, Local: local, FD: -1, CertificateUser: named})}
}

// call makes a call and returns its reply. An error means that the client was disconnected, or that ctx
// is done; then the caller can only be closed.
func (c *caller) call(ctx context.Context, words ...string) (reply, error) {
	c.calls.Reset()
	c.calls.Add(words...)
	replies, err := c.Do(ctx, &c.calls, nil)
	if err != nil {
		return reply{}, err
	}
	return readReply(&replies), nil
}
