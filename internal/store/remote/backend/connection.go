package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// connection is a connection to a server. One goroutine uses it at a time, apart from abort.
type connection struct {
	backend *Backend
	server  *server
	address string
	socket  *socket
	client  *redis.Client // with this one connection

	// native says that the server compares and sets by SET IFEQ. It is false while that is not known:
	// the script does the same.
	native    bool
	unloaded  bool   // the server lacks a script: all are loaded before the next requests
	loadError string // the reply of the server that has refused to load them
	measured  int64  // when the offset was last measured, by this process's clock

	outdated atomic.Bool // it has to authenticate again before the next requests

	pipeline pipeline // of the exchange under way; kept for its memory
	silence  silence  // since that exchange has begun
}

// errSpent is returned to go-redis when it asks for another connection.
var errSpent = errors.New("the connection was closed")

// open opens a connection, and finds out what the server can do and what its clock says.
func (b *Backend) open(ctx context.Context, at place) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.Silence)
	defer cancel()
	address, err := b.topology.address(ctx, at.primary)
	if err != nil {
		return nil, err
	}
	s := b.server(at.primary)
	s.mu.Lock()
	s.address = address
	s.mu.Unlock()
	c, err := b.dial(ctx, address, at.database)
	if err != nil {
		return nil, err
	}
	c.server = s
	aborted := context.AfterFunc(b.stop, c.abort)
	defer aborted()
	if err := c.introduce(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// dial opens a socket and makes it a client of go-redis.
func (b *Backend) dial(ctx context.Context, address string, database int) (*connection, error) {
	password, err := b.password()
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if b.config.Address.Socket != "" {
		network = "unix"
	}
	secure, err := b.tls()
	if err != nil {
		return nil, err
	}
	s, err := dial(ctx, network, address, secure, b.config.Now)
	if err != nil {
		return nil, err
	}
	c := &connection{backend: b, address: address, socket: s}
	c.client = newClient(s, b.config.Address.User, password, database, b.config)
	return c, nil
}

// tls returns the configuration of TLS for a new connection, or nil.
func (b *Backend) tls() (*tls.Config, error) {
	switch {
	case !b.config.Address.TLS:
		return nil, nil
	case b.config.TLS != nil:
		return b.config.TLS()
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}, nil
}

func newClient(s *socket, user, password string, database int, config Config) *redis.Client {
	var given atomic.Bool
	return redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if given.Swap(true) {
				return nil, errSpent
			}
			return s, nil
		},
		Protocol: 2, Username: user, Password: password, DB: database,
		PoolSize: 1, PipelinePoolSize: -1, MaxRetries: -1, DialerRetries: 1, ConnMaxIdleTime: -1,
		ReadTimeout: config.Silence, WriteTimeout: config.Silence,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// password returns the password for a new connection.
func (b *Backend) password() (string, error) {
	const longest = 64 << 10
	if b.config.PasswordFile == "" {
		if b.config.Password != "" {
			return b.config.Password, nil
		}
		return b.config.Address.Password, nil
	}
	text, err := os.ReadFile(b.config.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("the file with the store's password: %w", err)
	}
	if len(text) > longest {
		return "", errors.New("the file with the store's password is longer than 64 KiB")
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

// close closes the connection, whose client must not be in use.
func (c *connection) close() {
	_ = c.client.Close() // closes the socket, if it was used
	c.abort()
}

// abort closes the socket, so that an exchange under way ends.
func (c *connection) abort() { _ = c.socket.Close() }

// introduce prepares a new connection for its first decision. Its first exchange does not measure the
// clock, because go-redis authenticates in it.
func (c *connection) introduce(ctx context.Context) error {
	const readings = 3
	about, err := c.inquire(ctx)
	if err != nil {
		return err
	}
	s := c.server
	s.mu.Lock()
	other := about.RunID != s.runID || about.RunID == ""
	s.runID, s.about = about.RunID, about
	s.mu.Unlock()
	if other {
		s.clock.restart()
	}
	for range readings {
		if err := c.readClock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// command is a command of a pipeline. It is never sent again by go-redis.
type command struct{ *redis.Cmd }

// NoRetry tells go-redis not to send the command again. The options say so too, but for a cluster
// they would not be enough.
func (command) NoRetry() bool { return true }

func newCommand(args ...any) command { return command{redis.NewCmd(context.Background(), args...)} }

// run sends commands as one pipeline. The replies, and errors among them, are in the commands. run
// returns any other error, after which the connection cannot be used any more.
func (c *connection) run(ctx context.Context, commands []redis.Cmder) error {
	c.socket.begin()
	pipe := c.client.Pipeline()
	_ = pipe.BatchProcess(ctx, commands...) // it only collects them
	_, err := pipe.Exec(ctx)
	_ = c.socket.SetDeadline(time.Time{}) // exchanges have none: see silence
	if err == nil || isReply(err) && slices.ContainsFunc(commands, hasError) {
		return nil
	}
	return err // go-redis does not give the commands the reply to AUTH
}

func hasError(command redis.Cmder) bool { return command.Err() != nil }

// isReply reports whether an error is the reply of a server.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// readClock measures the offset once.
func (c *connection) readClock(ctx context.Context) error {
	command := newCommand("time")
	if err := c.run(ctx, []redis.Cmder{command}); err != nil {
		return err
	}
	if err := command.Err(); err != nil {
		return fmt.Errorf("TIME: %w", err)
	}
	return c.learnTime(command.Val())
}

// learnTime adds the reply of TIME, the first command of the exchange, to the measurements.
func (c *connection) learnTime(reply any) error {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return fmt.Errorf("TIME: the reply is %.100v", reply)
	}
	seconds, err1 := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
	micros, err2 := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("TIME: %w", err)
	}
	m := measure(seconds*1e9+micros*1e3, c.socket.sent, c.socket.received)
	c.measured = c.socket.received
	if set := c.server.clock.add(m, c.measured); set != 0 {
		c.backend.config.Log.Warn("store: the clock of the server was set, which moves the limits on it",
			"address", c.address, "milliseconds", set/1e6)
	}
	return nil
}
