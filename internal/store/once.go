package store

import (
	"context"
	"errors"
	"time"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
)

// Idempotent contains the operation of calls that a client may repeat.
type Idempotent interface {
	// Once makes a decision unless its token is remembered. If it is, for a call with the same words,
	// Once returns the decisions of that call, and repeated is true; if it is for a call with other words,
	// the error is ErrReused. All of it is one atomic step, so of two calls with one token at the same
	// time, one decides, and the other gets its decisions.
	//
	// A token belongs to the name of its first key in the selected database: it is remembered for its
	// TTL, whatever happens to the key, unless the database is emptied. It may be forgotten earlier if
	// there are too many. On a view without growth, a decision that would have to be remembered is not
	// made, and the error is ErrFull.
	//
	// The decisions are valid until the next call of the view.
	Once(ctx context.Context, o *Once) (decisions []quota.Decision, repeated bool, err error)
}

// TakesOnce is implemented by views that make the most frequent decision with a token, about one key, faster than Once
// does.
type TakesOnce interface {
	// TakeOnce is Once for a decision that Take makes. If made is false, nothing was changed, and the caller must use
	// Once: for example because there is an error.
	TakeOnce(
		ctx context.Context, key []byte, rule *limit.Rule, quantity int64, mode quota.Mode, token Token,
	) (d quota.Decision, repeated, made bool)
}

// Once is a decision that is made once.
type Once struct {
	Keys  [][]byte // all keys of the decision
	Token Token
	// Decide makes the decision with a view, which it must use in place of any other. taken says that the
	// decision is to be remembered. As in Edit, it may be called several times, and only the last call
	// counts; it may be called by another goroutine while the caller waits.
	Decide func(View) (decisions []quota.Decision, taken bool, err error)
	// Takes reports whether Decide would take, and changes nothing.
	Takes func(View) (bool, error)
	// HoldTime makes the call a hold that ends after this time, if it is not 0: see HoldKeeper. The token is its ID.
	// It is remembered while the hold is open, and for the token's TTL after that. IDs of holds and of other calls are
	// separate.
	HoldTime time.Duration
}

// Token is the ID token of a call.
type Token struct {
	ID    []byte        // 1 to MaxToken bytes
	Words [16]byte      // equal for calls that repeat one another
	TTL   time.Duration // for which it is remembered
}

// MaxToken is the length of the longest token, in bytes.
const MaxToken = 64

// ErrReused refuses a call whose token is remembered for another call.
var ErrReused = errors.New("ID was used for another call")

// TokenCounter is implemented by stores that keep tokens in the memory of this process.
type TokenCounter interface {
	// Tokens returns how many tokens are remembered, and how many were forgotten before their time,
	// because there were too many, since the store was made.
	Tokens() (remembered int, forgotten int64)
}
