package page

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/web"
)

// feed makes the messages of all viewers that have logged in as one user: the calls are made, and the
// message is encoded, once for all of them. A slow viewer misses messages, and gets the latest next.
type feed struct {
	page    *Page
	account *client.Account
	cancel  context.CancelFunc
	viewers int // guarded by Page.mu

	mu     sync.Mutex
	latest []byte        // nil before the first message
	next   chan struct{} // closed when there is a later one, or none will come
	ended  bool
}

// stream answers GET /stream with server-sent events: a message a second, of one line of JSON.
func (p *Page) stream(w http.ResponseWriter, r *http.Request, c *caller) {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default: // another page, which could not read the stream, but occupy it
		c.Close()
		fail(w, http.StatusForbidden, "the stream is for the page of this server only")
		return
	}
	f := p.join(c)
	if f == nil {
		c.Close()
		w.Header().Set("Retry-After", "60")
		fail(w, http.StatusServiceUnavailable, "too many viewers")
		return
	}
	defer p.leave(f)
	if web.KeepOpen(w) != nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for {
		message, next, ended := f.message()
		if ended || message != nil && p.send(w, out, message) != nil {
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-p.ending:
			return
		}
	}
}

// send sends a message to a viewer. It fails if the viewer does not read it in time.
func (p *Page) send(w http.ResponseWriter, out *http.ResponseController, message []byte) error {
	defer web.WriteWithin(w, p.config.Patience)()
	if _, err := w.Write(message); err != nil {
		return err
	}
	return out.Flush()
}

// join adds a viewer to the feed of the caller's user. If it is the first, the feed takes the caller over,
// otherwise the caller is closed. join returns nil if there are too many viewers.
func (p *Page) join(c *caller) *feed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers == MaxViewers {
		return nil
	}
	p.viewers++
	account := c.Account.Load()
	f := p.feeds[account]
	if f != nil {
		c.Close()
	} else {
		ctx, cancel := context.WithCancel(context.Background())
		f = &feed{page: p, account: account, cancel: cancel, next: make(chan struct{})}
		p.feeds[account] = f
		go f.run(ctx, c)
	}
	f.viewers++
	return f
}

// leave removes a viewer. The feed ends with the last one.
func (p *Page) leave(f *feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewers--
	if f.viewers--; f.viewers == 0 {
		p.forget(f)
	}
}

// forget ends a feed: the next viewer begins another. The caller holds mu.
func (p *Page) forget(f *feed) {
	f.cancel()
	if p.feeds[f.account] == f {
		delete(p.feeds, f.account)
	}
}

// Viewers returns the number of open streams.
func (p *Page) Viewers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.viewers
}

// run makes messages until the last viewer has left, or the session is closed: because its user was
// deleted, or by CLIENT KILL. Then the viewers are disconnected, and have to log in again.
func (f *feed) run(ctx context.Context, c *caller) {
	defer c.Close()
	defer f.end()
	ticks, stop := f.page.config.Ticks()
	defer stop()
	w := watcher{caller: c}
	for {
		m, err := w.look(ctx)
		if err != nil {
			return
		}
		line, err := json.Marshal(m)
		if err != nil {
			f.page.config.Log.Error("the page cannot encode its message", "error", err)
			return
		}
		f.publish(append(append([]byte("data: "), line...), "\n\n"...))
		select {
		case <-ctx.Done():
			return
		case <-c.Disconnected():
			return
		case <-ticks:
		}
	}
}

// message returns the latest message, and a channel that is closed when it is outdated.
func (f *feed) message() (latest []byte, next <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.next, f.ended
}

func (f *feed) publish(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest = message
	close(f.next)
	f.next = make(chan struct{})
}

func (f *feed) end() {
	f.page.mu.Lock()
	f.page.forget(f)
	f.page.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	close(f.next)
}
