package cellserver

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	mostAlone   = 8                      // flights under way, at which a call waits for a pipeline
	mostShared  = 4                      // pipelines under way at once, if some are late
	mostCalls   = 512                    // in one pipeline
	mostWaiting = 100_000                // calls that wait for a pipeline
	failures    = 5                      // calls in a row without a reply, before calls fail at once
	short       = time.Second            // a timeout for which a cancelled caller may wait
	probe       = 100 * time.Millisecond // between calls to a server that does not answer
)

var (
	errNoAnswer = errors.New("no answer from the server")
	errOpen     = errors.Join(errNoAnswer, errors.New("it has not answered the last calls"))
)

// node is one server. Calls that arrive while many are under way wait for them, and share a pipeline, in which a call
// costs the server a tenth of what it costs alone. A call that finds few under way is sent at once, by its caller:
// waiting would cost it more time than a pipeline saves.
type node struct {
	rdb     *redis.Client
	repeats bool // the client repeats calls
	late    time.Duration

	mu      sync.Mutex
	waiting []*flight
	under   int       // flights under way
	shared  int       // those of them that are pipelines
	last    int       // calls in the flight that began last
	began   time.Time // the last pipeline; if none is under way, the last flight
	failed  int       // calls without a reply, since the last reply
	next    time.Time // the next probe
}

// flight is a call on its way, alone or in a pipeline.
type flight struct {
	cmd  *redis.Cmd
	ctx  context.Context
	done chan struct{}
	left atomic.Bool // nobody waits for the reply
}

func newNode(rdb *redis.Client, timeout time.Duration) *node {
	own := rdb.WithTimeout(timeout) // the same connections, and a copy of the options
	own.Options().ContextTimeoutEnabled = true
	return &node{rdb: own, repeats: rdb.Options().MaxRetries > 0, late: timeout / 4}
}

// do makes a call. If the server has not answered the last calls, it fails at once, except for one call every 100 ms.
func (n *node) do(ctx context.Context, c *call, timeout time.Duration, now time.Time) (any, error) {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, err
	}
	if !n.admit(now) {
		return nil, errOpen
	}
	cmd := redis.NewCmd(ctx, c.words...)
	var err error
	if c.wait > 0 {
		err = n.await(ctx, cmd, c.wait, timeout)
		n.count(err)
	} else {
		err = n.send(ctx, cmd, timeout, now)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

func (n *node) admit(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed < failures {
		return true
	}
	if now.Before(n.next) {
		return false
	}
	n.next = now.Add(probe)
	return true
}

func (n *node) count(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled):
	case err == nil || errors.As(err, new(redis.Error)):
		n.failed = 0
	default:
		n.failed++
	}
}

// send sends a call, alone or with others, and waits for its reply. go-redis ends a call at its deadline, but not
// when its context is cancelled. So a caller with a long timeout leaves the call to another goroutine.
func (n *node) send(ctx context.Context, cmd *redis.Cmd, timeout time.Duration, now time.Time) error {
	f := &flight{cmd: cmd, ctx: ctx}
	n.mu.Lock()
	if (timeout <= short || ctx.Done() == nil) && n.goesAlone(now) {
		n.mu.Unlock()
		n.exchange([]*flight{f}, timeout)
		n.count(cmd.Err())
		n.landed(timeout)
		return cmd.Err()
	}
	if len(n.waiting) >= mostWaiting {
		n.mu.Unlock()
		return errNoAnswer
	}
	f.done = make(chan struct{})
	n.waiting = append(n.waiting, f)
	if n.under == 0 || n.areLate(now) {
		n.shared++
		go n.fly(n.batch(now), timeout)
	}
	n.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-f.done:
		return cmd.Err()
	case <-timer.C:
	case <-ctx.Done():
	}
	f.left.Store(true)
	return endOf(ctx)
}

// endOf is the error of a call whose context has ended. If its deadline has passed, there was no answer.
func endOf(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return errNoAnswer
}

// goesAlone begins the flight of one call, if few are under way. After a pipeline of many calls their callers are about
// to make the next ones, which shall be together again. The caller has locked n.mu.
func (n *node) goesAlone(now time.Time) bool {
	if n.under > 0 && (n.under >= mostAlone || n.last > mostAlone/2 || len(n.waiting) > 0) {
		return false
	}
	n.under++
	n.last = 1
	if n.shared == 0 {
		n.began = now
	}
	return true
}

// landed ends the flight of one call. Calls that wait for a flight to end get their pipeline.
func (n *node) landed(timeout time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under--
	if len(n.waiting) > 0 && n.shared == 0 {
		n.shared++
		go n.fly(n.batch(time.Now()), timeout)
	}
}

// areLate reports whether calls shall not wait longer for a flight to end.
func (n *node) areLate(now time.Time) bool {
	return n.shared < mostShared && now.Sub(n.began) > n.late
}

// batch begins a pipeline, and returns its calls.
func (n *node) batch(now time.Time) []*flight {
	calls := n.waiting
	n.waiting = nil
	if len(calls) > mostCalls {
		n.waiting = append(n.waiting, calls[mostCalls:]...)
		calls = calls[:mostCalls:mostCalls]
	}
	n.under++
	n.last = len(calls)
	n.began = now
	return calls
}

// fly sends calls, and then the calls that have arrived meanwhile, until there are none.
func (n *node) fly(calls []*flight, timeout time.Duration) {
	for len(calls) > 0 {
		n.exchange(calls, timeout)
		for _, f := range calls {
			n.count(f.cmd.Err())
			close(f.done)
		}
		runtime.Gosched() // so that these callers' next calls are in the next pipeline
		calls = n.following()
	}
}

// following returns the calls that have arrived during a pipeline. If there are none, it was the last.
func (n *node) following() []*flight {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under--
	if len(n.waiting) == 0 {
		n.shared--
		return nil
	}
	return n.batch(time.Now())
}

func (n *node) exchange(calls []*flight, timeout time.Duration) {
	ctx := calls[0].ctx
	if calls[0].done != nil {
		ctx = context.WithoutCancel(ctx) // others may need the pipeline
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if len(calls) == 1 {
		_ = n.rdb.Process(ctx, calls[0].cmd) // the command has the error
		return
	}
	pipeline := n.rdb.Pipeline()
	for _, f := range calls {
		if f.left.Load() {
			f.cmd.SetErr(context.Canceled)
			continue
		}
		_ = pipeline.Process(ctx, f.cmd)
	}
	_, _ = pipeline.Exec(ctx) // each command has its error
}

// await makes a call that waits, on a connection of its own. If the context ends first, it tells the server. Then the
// call has taken nothing, or it has its reply at that moment.
func (n *node) await(ctx context.Context, cmd *redis.Cmd, wait, timeout time.Duration) error {
	ended := make(chan error, 1)
	ids := make(chan int64, 1)
	alive := context.WithoutCancel(ctx)
	go func() {
		conn := n.rdb.WithTimeout(wait + timeout).Conn()
		defer conn.Close()
		id, err := conn.ClientID(alive).Result()
		if err == nil {
			ids <- id
			err = conn.Process(alive, cmd)
		}
		ended <- err
	}()
	timer := time.NewTimer(wait + timeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errNoAnswer
	case <-ctx.Done():
	}
	grace := time.NewTimer(timeout)
	defer grace.Stop()
	select {
	case id := <-ids:
		go n.rdb.ClientUnblock(alive, id)
	case <-grace.C:
		return endOf(ctx)
	}
	select {
	case err := <-ended:
		if err == nil && !limited(cmd) {
			return nil
		}
	case <-grace.C:
	}
	return endOf(ctx)
}

// limited reports whether the reply to a call is that it is limited.
func limited(cmd *redis.Cmd) bool {
	values, _ := cmd.Val().([]any)
	return len(values) > 0 && values[0] == int64(1)
}

// unable are the first words of replies that say that the server cannot decide at the moment.
var unable = []string{"LOADING", "OOM", "MISCONF", "STOREDOWN", "STOREUNSURE", "STOREBUSY",
	"ERR max number of clients reached"}

// NoAnswer reports whether an error means that the server did not decide: it did not answer, or answered that it
// cannot decide at the moment. All other errors are mistakes of the program.
func NoAnswer(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		for _, word := range unable {
			if text, found := strings.CutPrefix(reply.Error(), word); found && (text == "" || text[0] == ' ') {
				return true
			}
		}
		return false
	}
	var network net.Error
	return errors.Is(err, errNoAnswer) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, context.DeadlineExceeded)
}
