// Package remote tests the remote store with real servers: single servers, servers that Sentinels
// watch, and clusters.
package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/test/peer"
)

// began is the beginning of the process's monotonic time.
var began = time.Now()

func now() int64 { return int64(time.Since(began)) }

// link is a backend, and the connections that its user has opened.
type link struct {
	*backend.Backend
	t *testing.T
}

// open opens a backend for a URL. changes alter its configuration.
func open(t *testing.T, url string, changes ...func(*backend.Config)) *link {
	t.Helper()
	b, err := backend.Open(config(t, url, changes...))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	peer.Until(t, "a primary is known", func() bool { return len(b.Primaries()) > 0 })
	return &link{b, t}
}

// config returns a configuration with a timeout that is long enough for a busy machine.
func config(t *testing.T, url string, changes ...func(*backend.Config)) backend.Config {
	t.Helper()
	address, err := backend.ParseAddress(url)
	require.NoError(t, err)
	c := backend.Config{Address: address, Prefix: "cl:", Now: now, Silence: 30 * time.Second}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// connect opens the connection to the primary of a key. It reports whether that has succeeded.
func (l *link) connect(key string) bool {
	batch := combine.Batch{Primary: l.Primary(key), Connect: true}
	if batch.Primary == combine.NoPrimary {
		return false
	}
	l.Do(&batch)
	return !batch.Failed
}

// join is connect for a deployment that has just started, whose servers may not yet know each
// other.
func (l *link) join(key string) {
	l.t.Helper()
	peer.Until(l.t, "a connection", func() bool { return l.connect(key) })
}

// send sends requests to the primary of the first request's key, on an open connection.
func (l *link) send(requests ...*combine.Request) (failed bool) {
	return l.sendTo(l.Primary(requests[0].Parts[0].Key), requests...)
}

func (l *link) sendTo(p combine.Primary, requests ...*combine.Request) (failed bool) {
	batch := combine.Batch{Primary: p, Requests: requests}
	l.Do(&batch)
	return batch.Failed
}

// done sends a request, which must be done.
func (l *link) done(r *combine.Request) *combine.Request {
	l.t.Helper()
	return l.ends(combine.Done, r)
}

// ends sends a request, whose reply must have this status.
func (l *link) ends(want combine.Status, r *combine.Request) *combine.Request {
	l.t.Helper()
	failed := l.send(r)
	require.Equal(l.t, want, r.Reply.Status, "%+v", r.Reply)
	require.False(l.t, failed)
	return r
}

// text is the value of a part: "nil" if the key does not exist.
func text(v combine.Value) string {
	if v.Bytes == nil {
		return "nil"
	}
	return string(v.Bytes)
}

// values returns the values of all parts.
func values(r *combine.Request) (all []string) {
	for _, p := range r.Parts {
		all = append(all, text(p.Value))
	}
	return all
}

func read(keys ...string) *combine.Request {
	r := &combine.Request{Kind: combine.Read}
	for _, key := range keys {
		r.Parts = append(r.Parts, combine.Part{Key: key})
	}
	return r
}

func write(parts ...combine.Part) *combine.Request {
	return &combine.Request{Kind: combine.Write, Parts: parts}
}

// set is a change of a key from the known value to another; "nil" stands for a key that does not
// exist.
func set(key, known, value string) combine.Part {
	p := combine.Part{Key: key, Op: combine.Set, Bytes: []byte(value), Expires: combine.Never}
	if known != "nil" {
		p.Known = []byte(known)
	}
	if value == "nil" {
		p.Op, p.Bytes, p.Expires = combine.Remove, nil, 0
	}
	return p
}

// call is a command whose first argument is the key.
func call(words ...string) *combine.Request {
	r := &combine.Request{Kind: combine.Command, Parts: []combine.Part{{Key: words[1]}}}
	for _, word := range words {
		r.Command = append(r.Command, []byte(word))
	}
	return r
}

// raw returns a request's reply, as text.
func raw(r *combine.Request) string { return fmt.Sprint(r.Reply.Raw) }
