package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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

// connectTimeout bounds the time to connect, and then the time for TLS, HELLO, AUTH and SELECT
// together. It is long enough for several lost packets, and short enough for a person at a prompt.
// Replies to commands have no timeout: a health check of a container has its own.
const connectTimeout = 5 * time.Second

// connection is a connection to a server. It is opened when it is first needed. go-redis implements
// the protocol on it. The client of go-redis gets this one connection and no other: if its pool
// opened a second one, the SELECT and HELLO that were sent on the first would be lost.
type connection struct {
	network, address string
	user, password   string
	protocol         int         // of RESP
	database         int         // the selected database
	tls              *tls.Config // nil for none
	isURL            bool        // the server was given as a URL, so there are no options to correct
	timeout          time.Duration
	client           *redis.Client
	socket           net.Conn // below the client, with TLS
	first            *first   // what came first on a connection without TLS
	begun            bool     // HELLO, AUTH and SELECT have succeeded
}

func newConnection(s *Server) *connection {
	l := &connection{network: "tcp", address: net.JoinHostPort(s.host, strconv.Itoa(s.port)), user: s.user,
		password: s.password, database: s.database, protocol: 2, timeout: connectTimeout, tls: s.tls, isURL: s.isURL}
	if s.socket != "" {
		l.network, l.address = "unix", s.socket
	}
	return l
}

// disableClientLog stops go-redis from writing its errors to stderr, because it returns them too.
func disableClientLog() { logging.Disable() }

// String returns the prompt, in the format of redis-cli.
func (l *connection) String() string {
	name := l.address
	if l.network == "unix" {
		name = "redis " + name
	}
	if l.database != 0 {
		name += fmt.Sprintf("[%d]", l.database)
	}
	return name + "> "
}

// errConnectionClosed is returned to go-redis when it asks for another connection: the first was
// closed while no command was being executed.
var errConnectionClosed = errors.New("the connection was closed")

// errShutDown is the result of a SHUTDOWN that has ended the server, which then sends no reply.
var errShutDown = errors.New("the server has shut down")

// open opens the connection. go-redis sends HELLO, AUTH and SELECT before the first command.
func (l *connection) open() error {
	conn, err := net.DialTimeout(l.network, l.address, l.timeout)
	if err != nil {
		return l.dialError(err)
	}
	socket := conn
	silence := time.AfterFunc(l.timeout, func() { socket.Close() })
	if l.tls != nil {
		secured := tls.Client(conn, l.tls)
		if err := secured.Handshake(); err != nil {
			socket.Close()
			return l.handshakeError(err)
		}
		conn = secured
	} else {
		l.first = &first{Conn: conn}
		conn = l.first
	}
	l.socket, l.begun = conn, false
	var given atomic.Bool
	l.client = redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if given.Swap(true) {
				return nil, errConnectionClosed
			}
			return conn, nil
		},
		OnConnect: func(context.Context, *redis.Conn) error {
			silence.Stop()
			l.begun = true
			return nil
		},
		Protocol: l.protocol, Username: l.user, Password: l.password, DB: l.database,
		// One connection without a time limit, and no retries: a command that takes tokens would
		// take them twice.
		PoolSize: 1, PipelinePoolSize: -1, MaxRetries: -1, DialerRetries: 1, ConnMaxIdleTime: -1,
		ReadTimeout: -1, WriteTimeout: -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	l.client.AddHook(oneLogin{})
	return nil
}

func (l *connection) close() {
	if l.client != nil {
		_ = l.client.Close() // the connection is not used any more
		l.client = nil
	}
}

// unsupported are the commands after which a server sends no reply, or something else than replies.
var unsupported = []string{"SYNC", "PSYNC", "CLIENT REPLY"}

// call sends a command and returns the reply. After an error the connection is closed, and the next
// command opens another. A command is sent again only if it is certain that it was not sent before.
func (l *connection) call(call []string) (reply, error) {
	if startsWithAny(call, unsupported) {
		return reply{}, fmt.Errorf("%s does not get one reply, which this client does not support: use redis-cli",
			call[0])
	}
	wasOpen := l.client != nil
	r, err := l.send(call)
	if wasOpen && errors.Is(err, errConnectionClosed) {
		r, err = l.send(call)
	}
	if err == nil {
		l.trackDatabase(call, r)
	}
	return r, err
}

func (l *connection) send(call []string) (reply, error) {
	if l.client == nil {
		if err := l.open(); err != nil {
			return reply{}, err
		}
	}
	words := make([]any, len(call))
	for i, word := range call {
		words[i] = word
	}
	// Do would convert the reply to Go values, which do not distinguish a status from a string and
	// do not keep the order of a map. DoRaw returns the bytes.
	b, err := l.client.DoRaw(context.Background(), words...).Result()
	if err == nil {
		var r reply
		if r, _, err = parseReply(b); err == nil {
			return r, nil
		}
	}
	l.close()
	if l.begun && isClosed(err) && strings.EqualFold(call[0], "SHUTDOWN") {
		return reply{}, errShutDown
	}
	return reply{}, l.describeError(err)
}

// trackDatabase records the selected database, for the prompt and for the next connection.
func (l *connection) trackDatabase(call []string, r reply) {
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

// connect opens the connection and authenticates, so that errors are reported before the first
// prompt. It ignores the reply to PING.
func (l *connection) connect() error {
	_, err := l.call([]string{"PING"})
	return err
}

// warnNoPassword warns if the server needs no password, so that the given one has no effect. After
// an error, the next command would get the same, and the server would count a second failed login.
func (l *connection) warnNoPassword() error {
	r, err := l.call([]string{"AUTH", l.password})
	if err == nil && r.kind == kindError && strings.Contains(string(r.text), "without any password configured") {
		printError(errors.New("warning: the server needs no password: the one that was given has no effect"))
	}
	return err
}

// dialError returns the error for a failed attempt to connect.
func (l *connection) dialError(err error) error {
	if where := (*net.OpError)(nil); errors.As(err, &where) {
		err = where.Err // the message contains the address anyway
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	if l.isURL {
		return fmt.Errorf("cannot connect to %s: %w", l.address, err)
	}
	advice := "-h and -p name another address, -s a Unix socket"
	if l.network == "unix" {
		advice = "-s names another socket; without it, -h and -p name an address"
	}
	return fmt.Errorf("cannot connect to %s: %w. Is cellserver running there? %s", l.address, err, advice)
}

// handshakeError returns the error for a failed TLS handshake.
func (l *connection) handshakeError(err error) error {
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain):
		return fmt.Errorf("%s does not speak TLS: is it the plain port? Leave out --tls, or name the port for TLS with -p",
			l.address)
	case errors.Is(err, net.ErrClosed):
		return fmt.Errorf("no TLS handshake with %s within %v: is that a TLS port?", l.address, l.timeout)
	case isClosed(err):
		return fmt.Errorf("%s closed the connection during the TLS handshake: is that a TLS port?", l.address)
	}
	return fmt.Errorf("no TLS with %s: %w. --cacert names the trusted authority, --sni the server's name, --cert and --key the client certificate",
		l.address, err)
}

// first is a connection that knows the first byte, and the beginning of the first line, which it has read.
type first struct {
	net.Conn
	byte int // 0 if nothing has come; no reply begins with a NUL
	line string
}

func (f *first) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if n > 0 && f.byte == 0 {
		f.byte = int(b[0])
		line, _, _ := bytes.Cut(b[:min(n, 1024)], []byte("\r\n"))
		f.line = string(line)
	}
	return n, err
}

// refusal returns the error with which a server refuses a connection before any call, "" if it has not: in protected
// mode, or beyond maxclients. go-redis takes it for the reply to HELLO, and goes on.
func (f *first) refusal() string {
	if f == nil || !strings.HasPrefix(f.line, "-DENIED ") && !strings.HasPrefix(f.line, "-ERR max number of clients ") {
		return ""
	}
	return f.line[1:]
}

// SyscallConn implements syscall.Conn, with which go-redis finds out that a connection was closed.
func (f *first) SyscallConn() (syscall.RawConn, error) { return f.Conn.(syscall.Conn).SyscallConn() }

// speaksTLS reports whether a server that does not answer without TLS answers with it: it has sent an alert of TLS, or
// nothing, and presents a certificate on another connection, on which nothing is sent after that.
func (l *connection) speaksTLS() (presents bool) {
	const alert = 21 // the first byte of an alert
	if l.first == nil || l.first.byte != 0 {
		return l.first != nil && l.first.byte == alert
	}
	conn, err := net.DialTimeout(l.network, l.address, l.timeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer time.AfterFunc(l.timeout, func() { conn.Close() }).Stop()
	_ = tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent
		VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			presents = true
			return errPresents
		},
	}).Handshake() // fails: the certificate is all that is asked
	return presents
}

var errPresents = errors.New("the server has presented a certificate")

// isClosed reports whether an error means that the server has closed the connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// refused returns the error for a login that got an error reply, with advice about options if they name the server.
func (l *connection) refused(text, advice string) error {
	if l.isURL {
		advice = ""
	}
	return fmt.Errorf("%s refuses: %s%s", l.address, strings.TrimSuffix(text, "."), advice)
}

// describeError returns the error to be shown for an error of go-redis.
func (l *connection) describeError(err error) error {
	var refusal redis.Error
	var wrong *wrongPassword
	switch {
	case errors.Is(err, errConnectionClosed):
		return err
	case errors.As(err, &wrong):
		return l.refused(wrong.text, ". -a gives the password, --user the name of its user")
	// an error reply to HELLO, AUTH or SELECT; DoRaw returns those to commands as replies
	case errors.As(err, &refusal):
		return l.refused(refusal.Error(), ". -a gives a password, -n a database")
	case errors.Is(err, net.ErrClosed):
		return fmt.Errorf("%s accepts connections but has not answered within %v: is it stopped, or overloaded?",
			l.address, l.timeout)
	case l.tls != nil && strings.Contains(err.Error(),
		"remote error: tls: "): // in TLS 1.3, the server may reject the client after the handshake
		return l.handshakeError(err)
	case l.tls == nil && l.speaksTLS():
		advice := "add --tls, and --cacert with the file of its authority"
		if l.isURL {
			advice = "write rediss:// in place of redis://"
		}
		return fmt.Errorf("%s speaks TLS: %s", l.address, advice)
	case isClosed(err) && l.first.refusal() != "":
		return fmt.Errorf("%s refuses: %s", l.address, strings.TrimSuffix(l.first.refusal(), "."))
	case isClosed(err):
		return fmt.Errorf("%s closed the connection before its reply was complete: the command may have been executed",
			l.address)
	}
	return fmt.Errorf("%s does not answer in the Redis protocol: is it another kind of server? (%w)", l.address, err)
}
