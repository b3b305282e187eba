package backend

import (
	"context"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/store/remote/combine"
)

// Renew has all connections authenticate again, with the password that the file has now. It first opens
// a new connection to each primary. If a primary does not accept the password, its connections stay as
// they are: a server does not close connections when a password is changed. The error names these
// primaries.
func (b *Backend) Renew(ctx context.Context) error {
	return b.connectToAll(ctx, func(p combine.Primary) {
		b.mu.RLock()
		defer b.mu.RUnlock()
		for at, c := range b.connections {
			if at.primary == p {
				c.outdated.Store(true)
			}
		}
		for at, a := range b.askers {
			if c := a.connection.Load(); at.primary == p && c != nil {
				c.outdated.Store(true)
			}
		}
	})
}

// renew authenticates again, if Renew has asked for it. It reports whether the connection can still be
// used. It can be used even if the server refuses the password: its user has not changed then.
func (c *connection) renew() bool {
	if !c.outdated.Load() {
		return true
	}
	c.outdated.Store(false)
	password, err := c.backend.password()
	if err == nil && password == "" {
		return true
	}
	if err == nil {
		words := []any{"auth", password}
		if user := c.backend.config.Address.User; user != "" {
			words = []any{"auth", user, password}
		}
		command := newCommand(words...)
		if c.run(context.Background(), []redis.Cmder{command}) != nil {
			return false
		}
		err = command.Err()
	}
	if err != nil {
		c.backend.config.Log.Warn("store: a connection could not authenticate again, and stays as it is",
			"address", c.address, "error", err)
	}
	return true
}
