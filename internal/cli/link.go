package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// connectPatience is how long the server may take to accept a connection, and then again to
// introduce itself: several times what a lost packet costs, and no longer than somebody at a prompt
// waits. Replies may take for ever: who needs an answer in time, such as a container's health
// check, has a clock of his own.
const connectPatience = 5 * time.Second

// link is one connection to a server, opened when it is first needed. go-redis speaks; it is given
// the connection, and no second one, because a pool that dials behind our back would lose the
// SELECT and the HELLO that were sent on the first.
type link struct {
	network, address string
	password         string
	protocol         int         // of RESP
	database         int         // the one that the connection has selected
	secure           *tls.Config // nil for none
	patience         time.Duration
	client           *redis.Client
}

func newLink(o *options) *link {
	l := &link{network: "tcp", address: net.JoinHostPort(o.host, strconv.Itoa(o.port)), password: o.password,
		database: o.database, protocol: 2, patience: connectPatience, secure: o.secure}
	if o.socket != "" {
		l.network, l.address = "unix", o.socket
	}
	if o.resp3 {
		l.protocol = 3
	}
	return l
}

// quietClient keeps go-redis from logging on stderr: what goes wrong is returned as well.
func quietClient() { logging.Disable() }

// String is the prompt, as redis-cli writes it.
func (l *link) String() string {
	name := l.address
	if l.network == "unix" {
		name = "redis " + name
	}
	if l.database != 0 {
		name += fmt.Sprintf("[%d]", l.database)
	}
	return name + "> "
}

// errGone is what go-redis hears when it wants another connection: the one that it had was closed
// while nothing was under way.
var errGone = errors.New("the connection is gone")

// open connects. Nothing has been said yet: go-redis introduces itself (HELLO, AUTH, SELECT) before
// the first call.
func (l *link) open() error {
	conn, err := net.DialTimeout(l.network, l.address, l.patience)
	if err != nil {
		return l.cannotConnect(err)
	}
	socket := conn
	silence := time.AfterFunc(l.patience, func() { socket.Close() })
	if l.secure != nil {
		secured := tls.Client(conn, l.secure)
		if err := secured.Handshake(); err != nil {
			socket.Close()
			return l.noHandshake(err)
		}
		conn = secured
	}
	var given atomic.Bool
	l.client = redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if given.Swap(true) {
				return nil, errGone
			}
			return conn, nil
		},
		OnConnect: func(context.Context, *redis.Conn) error {
			silence.Stop()
			return nil
		},
		Protocol: l.protocol, Password: l.password, DB: l.database,
		// One connection that lasts, and no call twice: a call that takes tokens would take them
		// twice.
		PoolSize: 1, PipelinePoolSize: -1, MaxRetries: -1, DialerRetries: 1, ConnMaxIdleTime: -1,
		ReadTimeout: -1, WriteTimeout: -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return nil
}

func (l *link) close() {
	if l.client != nil {
		_ = l.client.Close() // nothing can be done about it
		l.client = nil
	}
}

// listening lists the commands after which a server sends more than one reply, or none.
var listening = []string{"MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "SYNC", "PSYNC", "CLIENT REPLY"}

// do makes a call. After an error the connection is closed, and the next call opens another. A call
// is never repeated unless it is certain that it was not sent.
func (l *link) do(call []string) (reply, error) {
	if startsWithAny(call, listening) {
		return reply{}, fmt.Errorf("%s changes how a server answers, which this client does not follow: use redis-cli",
			call[0])
	}
	wasOpen := l.client != nil
	r, err := l.try(call)
	if wasOpen && errors.Is(err, errGone) {
		r, err = l.try(call)
	}
	if err == nil {
		l.follow(call, r)
	}
	return r, err
}

func (l *link) try(call []string) (reply, error) {
	if l.client == nil {
		if err := l.open(); err != nil {
			return reply{}, err
		}
	}
	words := make([]any, len(call))
	for i, word := range call {
		words[i] = word
	}
	// Do would have made Go values of the reply, which do not say what was a status and what a
	// string, nor in which order a map came. DoRaw returns the bytes.
	b, err := l.client.DoRaw(context.Background(), words...).Result()
	if err == nil {
		var r reply
		if r, _, err = parseReply(b); err == nil {
			return r, nil
		}
	}
	l.close()
	return reply{}, l.explain(err)
}

// follow keeps in mind which database is selected, for the prompt and for the next connection.
func (l *link) follow(call []string, r reply) {
	switch {
	case r.kind == kindError:
	case len(call) == 2 && strings.EqualFold(call[0], "SELECT"):
		if n, err := strconv.Atoi(call[1]); err == nil {
			l.database = n
		}
	case len(call) == 1 && strings.EqualFold(call[0], "RESET"):
		l.database = 0
	}
}

// connect opens the connection and lets both sides introduce themselves, so that who is about to
// type hears at once if nobody is there. What PING is answered does not matter.
func (l *link) connect() error {
	_, err := l.do([]string{"PING"})
	return err
}

func (l *link) cannotConnect(err error) error {
	if where := (*net.OpError)(nil); errors.As(err, &where) {
		err = where.Err // the rest names the address once more
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	advice := "-h and -p name another address, -s a Unix socket"
	if l.network == "unix" {
		advice = "-s names another socket; without it, -h and -p name an address"
	}
	return fmt.Errorf("cannot connect to %s: %w. Is cellserver running there? %s", l.address, err, advice)
}

// noHandshake says why there is no TLS.
func (l *link) noHandshake(err error) error {
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain):
		return fmt.Errorf("%s does not speak TLS: is it the plain port?", l.address)
	case errors.Is(err, net.ErrClosed):
		return fmt.Errorf("no TLS handshake with %s within %v: does it speak TLS there?", l.address, l.patience)
	case isEnd(err):
		return fmt.Errorf("%s closed the connection during the TLS handshake: does it speak TLS there?", l.address)
	}
	return fmt.Errorf("no TLS with %s: %w. --cacert names the trusted authority, --sni the server's name, --cert and --key the client certificate",
		l.address, err)
}

// isEnd says whether an error is that the server has ended the connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// explain says what an error of go-redis means to who typed the command.
func (l *link) explain(err error) error {
	var refusal redis.Error
	switch {
	case errors.Is(err, errGone):
		return err
	case errors.As(err, &refusal): // of a call it would be a reply, and no error: this is the introduction
		return fmt.Errorf("%s refuses: %s. -a gives a password, -n a database", l.address,
			strings.TrimSuffix(refusal.Error(), "."))
	case errors.Is(err, net.ErrClosed):
		return fmt.Errorf("%s accepts connections but has not answered within %v: is it stopped, or overloaded?",
			l.address, l.patience)
	case l.secure != nil && strings.Contains(err.Error(),
		"remote error: tls: "): // with TLS 1.3 the server says so after the handshake
		return l.noHandshake(err)
	case isEnd(err):
		return fmt.Errorf("%s closed the connection before its reply was complete: the command may have been executed",
			l.address)
	}
	return fmt.Errorf("%s does not answer in the Redis protocol: is it another kind of server? (%w)", l.address, err)
}
