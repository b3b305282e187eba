package cli

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wrongPassword is the reply to a HELLO with a wrong password.
type wrongPassword struct{ text string }

func (w *wrongPassword) Error() string { return w.text }

// oneLogin stops go-redis from logging in with AUTH after a HELLO with the same wrong password: a server would
// count two failed logins. go-redis does so after every error reply, because old servers have no HELLO.
type oneLogin struct{}

func (oneLogin) DialHook(next redis.DialHook) redis.DialHook { return next }

func (oneLogin) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (oneLogin) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if err != nil && command.Name() == "hello" && strings.HasPrefix(err.Error(), "WRONGPASS ") {
			return &wrongPassword{err.Error()}
		}
		return err
	}
}
