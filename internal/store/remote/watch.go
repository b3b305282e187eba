package remote

import (
	"context"
	"sync"
)

// watch gives up the call that a view waits for when its context is done. The calls of a client have
// the same context, one after the other, so the watch registers with the context only once: registering
// each call would add noticeably to its cost.
type watch struct {
	mu   sync.Mutex
	ctx  context.Context
	stop func() bool // the context does not call fire any more
	call *call       // nil while no call waits
}

// begin watches the context of a call.
func (w *watch) begin(ctx context.Context, c *call) {
	w.mu.Lock()
	w.call = c
	if w.ctx != ctx {
		if w.stop != nil {
			w.stop()
		}
		w.ctx, w.stop = ctx, context.AfterFunc(ctx, func() { w.fire(ctx) })
	}
	w.mu.Unlock()
	if ctx.Err() != nil {
		w.fire(ctx) // perhaps it was called before this call began
	}
}

// end is called when the call has ended. From then on, the call is not given up any more, so it may be
// used again.
func (w *watch) end() {
	w.mu.Lock()
	w.call = nil
	w.mu.Unlock()
}

// fire is called when a context is done. It may be called late, when the view has another context.
func (w *watch) fire(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == ctx && w.call != nil {
		w.call.giveUp()
	}
}
