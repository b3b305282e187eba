package session

import (
	"context"
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
	run      run
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
	line     string // see command.Waiting
}

// again runs the row of a call again, and delivers the reply unless the call waits on.
func (r *rerun) again(w *waiter, state rerunState, due waiting.Due) {
	in, c := r.instance, &r.call
	if due == waiting.Over && state.refusal != "" {
		in.refuseWaiting(in.waiting.end(w), w, state.refusal)
		return
	}
	r.begin(w, state, due)
	began := in.Now()
	c.Left, c.Line = state.deadline-began, state.line
	in.running.background.Store(c.Client.ID, c)
	err := in.guard(c, w.row, func() error { return r.try(w) })
	c.Snapshot = nil
	if err == nil && c.Delay.Key != nil {
		in.running.background.Delete(c.Client.ID)
		stays, full := in.waiting.stay(w, c.Delay, began)
		if stays {
			return
		}
		err = full
	}
	r.run.err = err
	in.announce(&r.run)
	in.Tracking.SendPending(true)
	in.running.background.Delete(c.Client.ID)
	r.finish(w)
}

// begin prepares a run of a row.
func (r *rerun) begin(w *waiter, state rerunState, due waiting.Due) {
	c := &r.call
	r.run = run{call: c, row: w.row, words: w.unpack(r.run.words[:0])}
	c.Client, c.Middleware, c.Caching = state.session.Client, state.middleware, state.caching
	c.Delay, c.Limited, c.Hits, c.Misses, c.Closes, c.Outcome = command.Delay{}, 0, 0, 0, false, nil
	if c.Attempt = command.NextAttempt; due == waiting.Over {
		c.Attempt = command.LastAttempt
	}
	r.out.SetProtocol(c.Client.ProtocolVersion())
	c.View.Select(w.database)
	c.View.SetCaller(c.Client.ID)
	c.View.Begin()
	c.Sampling.Begin(c.View.Now())
}

// try runs a row, unless the client has lost the right to the call while it waited.
func (r *rerun) try(w *waiter) error {
	if mustCheck(r.call.Client) {
		if err := r.instance.authorize(&r.call, w.row, r.run.words, false); err != nil {
			return err
		}
	}
	r.instance.make(&r.run)
	return r.run.err
}

// finish counts a call that has ended, and delivers its reply. As in Redis, the duration of the call does not
// include the time for which it has waited.
func (r *rerun) finish(w *waiter) {
	in, c := r.instance, &r.call
	reply := in.replyOf(c, w.row, r.run.err)
	in.count(&r.run)
	s, outcome := in.waiting.end(w), c.Outcome
	in.answerWaiting(s, w, client.Delivery{Reply: reply, Before: func() {
		if outcome != nil && s.call.Outcome != nil {
			s.call.Outcome = outcome
		}
	}})
}

// answerWaiting ends the wait of a client with a reply.
func (in *Instance) answerWaiting(s *Session, w *waiter, reply client.Delivery) {
	in.Stats.Of(w.row.Number).Calls.Add(1)
	s.ChargeAsync(-w.bytes())
	in.Blocked.Answer(s.Client, reply)
}

// refuseWaiting ends the wait of a client with an error reply, in RESP.
func (in *Instance) refuseWaiting(s *Session, w *waiter, refusal string) {
	in.CountError(w.row, command.Refusal(strings.TrimSpace(strings.TrimPrefix(refusal, "-"))))
	in.answerWaiting(s, w, client.Delivery{Reply: [][]byte{[]byte(refusal)}})
}
