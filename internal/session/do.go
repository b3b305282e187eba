package session

import (
	"context"
	"errors"
	"strconv"

	"cellserver/internal/client"
	"cellserver/internal/resp"
)

// Caller is a client in this process, with a session of its own: its calls are words, and its
// transport is Do. The front for HTTP and the page make their calls in this way. So rights, counts,
// the slow log and CLIENT LIST treat it like any other client. One goroutine at a time may use it.
type Caller struct {
	*Session
	// Outcome receives the decision of the next call, as a value of its family; nil if the reply suffices. After a call
	// that has waited it may be another value: see command.Call.Outcome.
	Outcome any
	// Reserve is called before bytes are added to the replies. If it returns an error, so does Do.
	Reserve func(bytes int) error

	replies []byte
	woken   chan struct{}   // receives a value when the session is to be resumed
	cut     context.Context // ends when the client is disconnected
}

// ErrEnded means that the session has ended: by CLIENT KILL, for example, or because its user was deleted.
var ErrEnded = errors.New("ERR the connection was ended")

// OpenCaller begins a session for a client in this process. It sets p.Wake; p.Cut may be nil.
func (in *Instance) OpenCaller(p client.Peer) *Caller {
	cut, disconnect := context.WithCancel(context.Background())
	c := &Caller{woken: make(chan struct{}, 1), cut: cut}
	also := p.Cut
	p.Wake, p.Cut = c.wake, func() {
		disconnect()
		if also != nil {
			also()
		}
	}
	c.Session = in.Open(p)
	return c
}

func (c *Caller) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Disconnected returns a channel that is closed when the client is disconnected.
func (c *Caller) Disconnected() <-chan struct{} { return c.cut.Done() }

// IsIdle reports whether the session can make further calls, and has nothing left to do for earlier calls.
func (c *Caller) IsIdle() bool {
	return !c.Closing() && !c.HasUnanswered() && len(c.Output()) == 0
}

// maxKeptReplies is the size of the largest buffer, in bytes, that a caller keeps between calls.
const maxKeptReplies = 16 << 10

// Do makes calls, and returns their replies in order, which are valid until the next Do. If a call waits, for a
// limiter or for work outside this goroutine, Do calls onWait once, unless it is nil, and waits too. An
// error means that there may be fewer replies than calls, and that the caller can only be closed: ctx
// is done, Reserve has failed, or the session has ended.
func (c *Caller) Do(ctx context.Context, calls *Calls, onWait func()) (resp.Replies, error) {
	if c.replies = c.replies[:0]; cap(c.replies) > maxKeptReplies {
		c.replies = nil
	}
	c.given, c.call.Outcome = calls, c.Outcome
	err := c.run(ctx, onWait)
	c.Outcome = c.call.Outcome
	return resp.RepliesIn(c.replies), err
}

func (c *Caller) run(ctx context.Context, onWait func()) error {
	for c.Resume(); ; c.Resume() {
		c.instance.Yield()
		for out := c.Output(); len(out) > 0; out = c.Output() {
			if c.Reserve != nil {
				if err := c.Reserve(len(out)); err != nil {
					return err
				}
			}
			c.replies = append(c.replies, out...)
			c.Sent()
		}
		switch {
		case c.Closing(), c.cut.Err() != nil:
			return ErrEnded
		case c.More():
			continue
		case !c.HasUnanswered() && !c.HasMail():
			return nil
		}
		if onWait != nil {
			onWait()
			onWait = nil
		}
		select {
		case <-c.woken:
		case <-c.cut.Done():
			return ErrEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Calls are calls for Do, in little memory: each word takes its length and four bytes. The zero value has no calls.
type Calls struct {
	text  []byte  // of all words
	words []int32 // the end of each word in text
	calls []int32 // the end of each call in words
	made  int     // number of calls that the session has read
}

// Reset removes all calls.
func (c *Calls) Reset() {
	if cap(c.text)+4*cap(c.words)+4*cap(c.calls) > maxKeptReplies {
		*c = Calls{}
	}
	c.text, c.words, c.calls, c.made = c.text[:0], c.words[:0], c.calls[:0], 0
}

// Add adds a call. The bytes of all calls together must be less than 2 GiB.
func (c *Calls) Add(words ...string) {
	for _, word := range words {
		c.AddWord(word)
	}
	c.EndCall()
}

// AddWord adds a word to the call that EndCall ends or DropCall removes.
func (c *Calls) AddWord(word string) {
	c.text = append(c.text, word...)
	c.endWord()
}

// AddBytes adds a word, as AddWord does.
func (c *Calls) AddBytes(word []byte) {
	c.text = append(c.text, word...)
	c.endWord()
}

// AddInt adds a number in decimal digits, as AddWord does.
func (c *Calls) AddInt(n int64) {
	c.text = strconv.AppendInt(c.text, n, 10)
	c.endWord()
}

func (c *Calls) endWord() { c.words = append(c.words, int32(len(c.text))) }

// EndCall ends a call, which must have words.
func (c *Calls) EndCall() { c.calls = append(c.calls, int32(len(c.words))) }

// DropCall removes the words that were added since the latest EndCall.
func (c *Calls) DropCall() {
	c.words = c.words[:last(c.calls)]
	c.text = c.text[:last(c.words)]
}

// last returns the last of some ends; 0 if there is none.
func last(ends []int32) int32 {
	if len(ends) == 0 {
		return 0
	}
	return ends[len(ends)-1]
}

// next appends the words of the next call, which are parts of c.text.
func (c *Calls) next(words [][]byte) [][]byte {
	from, to := last(c.calls[:c.made]), c.calls[c.made]
	begin := last(c.words[:from])
	for _, end := range c.words[from:to] {
		words = append(words, c.text[begin:end:end])
		begin = end
	}
	return words
}
