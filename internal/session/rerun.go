package session

import (
	"context"
	"runtime/debug"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
	"cellserver/internal/waiting"
)

// rerun runs the rows of calls that have waited, one after the other.
type rerun struct {
	instance *Instance
	call     command.Call
	out      resp.Writer
	words    [][]byte
}

func newRerun(in *Instance) *rerun {
	r := &rerun{instance: in}
	r.out.UsePieces()
	r.call = command.Call{Context: context.Background(), View: in.Store.View(), Out: &r.out, Server: &in.Server}
	if v, suspends := r.call.View.(store.Suspender); suspends {
		v.SetWait(func(done <-chan struct{}) { in.Background.Await(func() { <-done }) })
	}
	return r
}

// rerunState is the state of a call when its row runs.
type rerunState struct {
	waiterState
	deadline int64
}

// run runs the row of a call, and delivers the reply unless the call waits on.
func (r *rerun) run(w *waiter, state rerunState, due waiting.Due) {
	in, c := r.instance, &r.call
	if due == waiting.Over && state.refusal != "" {
		in.refuseWaiting(in.waiting.end(w), w, state.refusal)
		return
	}
	r.begin(w, state, due)
	began := in.Now()
	c.Left = state.deadline - began
	in.backgroundCalls.Store(c.Client.ID, c)
	misses := c.Misses
	ns, err := r.try(w)
	if err == nil && c.Delay.Key != nil {
		in.backgroundCalls.Delete(c.Client.ID)
		stays, full := in.waiting.stay(w, c.Delay, began)
		if stays {
			return
		}
		err = full
	}
	if in.Hooks.Has(command.Notifying) {
		in.notify(c, w.row, r.words, misses, err != nil)
	}
	in.Tracking.SendPending(true)
	in.backgroundCalls.Delete(c.Client.ID)
	r.finish(w, ns, err)
}

// begin prepares a run of a row.
func (r *rerun) begin(w *waiter, state rerunState, due waiting.Due) {
	c := &r.call
	r.words = w.unpack(r.words[:0])
	c.Client, c.Middleware, c.Caching = state.client, state.middleware, state.caching
	c.Delay, c.Limited, c.Hits, c.Misses, c.Closes = command.Delay{}, 0, 0, 0, false
	if c.Attempt = command.NextAttempt; due == waiting.Over {
		c.Attempt = command.LastAttempt
	}
	r.out.SetProtocol(c.Client.ProtocolVersion())
	c.View.Select(w.database)
	c.View.SetCaller(c.Client.ID)
	c.View.Begin()
	c.Sampling.Begin(c.View.Now())
}

// try runs a row, unless the client has lost the right to the call while it waited. If the row panics, the
// client is disconnected: see recoverPanic.
func (r *rerun) try(w *waiter) (ns int64, err error) {
	defer func() {
		r.call.Snapshot = nil
		if reason := recover(); reason != nil {
			r.instance.logPanic(r.call.Client, w.row.Name, reason, debug.Stack())
			r.call.Client.Peer.Cut()
			err = command.ErrStopped
		}
	}()
	if mustCheck(r.call.Client) {
		if err := r.instance.authorize(&r.call, w.row, r.words, false); err != nil {
			return 0, err
		}
	}
	return r.instance.runAndTime(&r.call, w.row, r.words, false)
}

// finish counts a call that has ended, and delivers its reply. The time for which it has waited is not
// part of its duration, as in Redis.
func (r *rerun) finish(w *waiter, ns int64, err error) {
	in, c := r.instance, &r.call
	reply := c.Out.Pieces()
	if err != nil {
		c.Out.Error(in.CountError(w.row, err))
		reply = c.Out.Pieces()
	}
	if in.Observe(w.row, ns) {
		in.Stats.SlowLog.Add(c.SlowCall(w.row, r.words), ns/1000)
	}
	c.CountReads()
	in.answerWaiting(in.waiting.end(w), w, reply, c.Limited)
}

// answerWaiting ends the wait of a client with a reply.
func (in *Instance) answerWaiting(c *client.Client, w *waiter, reply [][]byte, limited int64) {
	calls := in.Stats.Of(w.row.Number)
	calls.Limited.Add(limited)
	calls.Calls.Add(1)
	c.ChargeAsync(-w.bytes())
	in.Blocked.Answer(c, client.Delivery{Reply: reply})
}

// refuseWaiting ends the wait of a client with an error reply, in RESP.
func (in *Instance) refuseWaiting(c *client.Client, w *waiter, refusal string) {
	in.CountError(w.row, command.Refusal(strings.TrimSpace(strings.TrimPrefix(refusal, "-"))))
	in.answerWaiting(c, w, [][]byte{[]byte(refusal)}, 0)
}
