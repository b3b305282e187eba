package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"cellserver/internal/gcra"
	"cellserver/internal/hold"
	"cellserver/internal/idempotency"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// The open holds of a key (package hold) are in a second key, in the same slot: the key's book. Every hold, settlement
// and refund reads and changes the book in its step; no other call does. A call that makes a hold also writes a head,
// in a third key for each ID. The head has the reply for a repetition of the call, and later how the hold has ended.
// Books and heads expire by themselves, so clients that have died leave nothing behind.
//
//	book   holdsMark, 8 random bytes that are new with each write, 8 that the book keeps for its life, hold.Book
//	head   headMark, until when it is remembered, the words of its call, the book's 8 bytes, ...: see appendHead
//
// A book has all holds of a key, up to a thousand, in one value, because a correction changes the levels of later holds
// too. Only the 8 random bytes are compared.
//
// If the head of a hold says that it is open, but the book does not have it, the hold has lapsed, or its key was
// deleted. In the second case, there is no book, or a book with another 8 bytes.

// The marks begin the values of books and heads. The digit is the version of their forms.
const (
	holdsMark     = "cl1hs:"
	headMark      = "cl1hd:"
	holdsIdentity = len(holdsMark) + 8
	holdsHeader   = holdsIdentity + 8
)

var errHolds = &store.RefusedError{Reply: "ERR holds are in the store in a form that this version does not read"}

// holdsName returns the name of the key with the holds of a key.
func (v *view) holdsName(key []byte) []byte { return v.ownName(key, "holds:"+short(key)) }

// short returns a key, or the digest of a key of more than 1024 bytes: the backend may bound the names of keys.
func short(key []byte) string {
	const longest = 1024
	if len(key) <= longest {
		return "=" + string(key)
	}
	sum := sha256.Sum256(key)
	return "#" + string(sum[:])
}

// holdsNames returns the names for several keys.
func (v *view) holdsNames(keys [][]byte) [][]byte {
	names := make([][]byte, len(keys))
	for i, key := range keys {
		names[i] = v.holdsName(key)
	}
	return names
}

// headName returns the name of the head of a hold. The length of the ID precedes it, as in tokenName.
func (v *view) headName(key, id []byte) []byte {
	return v.ownName(key, "hold:"+strconv.Itoa(len(id))+":"+string(id)+short(key))
}

// ownName returns the name of an internal key in the slot of a key, without the prefix.
func (v *view) ownName(key []byte, name string) []byte {
	return []byte(strings.TrimPrefix(v.store.OwnKey(v.name(key), name), v.store.Prefix))
}

// book is the book of a key in a step.
type book struct {
	key, name []byte
	epoch     uint64
	form      []byte // as it was read; nil if there was none
	has       bool   // the book has the hold that the step is about
	hold.Book
}

// readBook returns the book of a key, which is empty if there is none.
func (s *scratch) readBook(key, name []byte) (*book, error) {
	b := &book{key: key, name: name, epoch: newVersion()}
	value, e, err := s.view.Read(background, name, nil)
	switch {
	case err != nil || e.Kind == limit.None:
		return b, err
	case len(value) < holdsHeader || !bytes.HasPrefix(value, []byte(holdsMark)):
		return b, errHolds
	}
	b.epoch, b.form = binary.BigEndian.Uint64(value[holdsIdentity:]), value[holdsHeader:]
	if b.Read(b.form) != nil {
		return b, errHolds
	}
	return b, nil
}

// write writes the holds now in place of the book, if they differ; nil removes the book. The replies of the holds
// are not there, but in their heads.
func (b *book) write(s *scratch, now *hold.Book) error {
	if now == nil && b.form == nil {
		return nil
	}
	if now == nil {
		_, err := s.view.Delete(background, [][]byte{b.name})
		return err
	}
	value := binary.BigEndian.AppendUint64([]byte(holdsMark), newVersion())
	value = now.Append(binary.BigEndian.AppendUint64(value, b.epoch))
	if bytes.Equal(value[holdsHeader:], b.form) {
		return nil
	}
	_, last := now.Ends()
	return s.view.Write(background, b.name, store.Value{Bytes: value}, s.margin.after(last))
}

// withHolds makes an operation while the scratch has the open holds of keys, and writes their books
// back. The keys of the books must be loaded. id is the ID of the hold that the step is about; nil if
// it is about none.
func (v *view) withHolds(s *scratch, keys [][]byte, id []byte, operation func(books []*book) error) error {
	var books []*book
	for _, key := range keys {
		b, err := s.readBook(key, v.holdsName(key))
		if err != nil {
			return err
		}
		books = append(books, b)
	}
	for _, b := range books {
		if b.form == nil {
			continue
		}
		if o, found := b.Find(id); found {
			b.has = o.Ends > s.now
		}
		if err := s.verify(b); err != nil {
			return err
		}
		s.holds.PutHolds(b.key, &b.Book)
	}
	err := operation(books)
	for _, b := range books {
		if now := s.holds.TakeHolds(b.key); err == nil {
			err = b.write(s, now)
		}
	}
	return err
}

// verify compares a book with its key, which another client of the backend may have deleted. A key that was made again
// is recognized by the instant of its window or entry, and a bucket by its level, unless as much was taken again. A
// window of the calendar that was begun again is not recognized.
func (s *scratch) verify(b *book) error {
	value, e, err := s.view.Read(background, b.key, nil)
	level := int64(math.MaxInt64)
	switch {
	case err != nil:
		return err
	case e.Kind == limit.None:
		level = 0
	case e.Kind == limit.Throttle:
		level = e.Expires - s.now
	case e.Kind == limit.Integer && limit.Kind(b.Kind()) == limit.Throttle: // a TAT, see withTATs
		tat, _ := parseInteger(value)
		level = tat - s.now
	}
	b.Verify(s.now, func(hold.Counter) int64 { return level })
	return nil
}

// head says whether a hold is open, or how it has ended.
type head struct {
	until     int64 // instant until which it is remembered
	words     [16]byte
	epoch     uint64
	ends      int64 // instant at which the hold ends, unless it was settled
	settled   bool
	quantity  int64            // actual quantity it was settled with
	reply     []quota.Decision // of the call that made it
	decisions []quota.Decision // of the call that settled it
}

func appendHead(dst []byte, h *head) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, headMark...), uint64(h.until))
	dst = binary.BigEndian.AppendUint64(append(dst, h.words[:]...), h.epoch)
	settled := uint64(0)
	if h.settled {
		settled = 1
	}
	for _, n := range [...]uint64{settled, uint64(h.ends), uint64(h.quantity)} {
		dst = binary.AppendUvarint(dst, n)
	}
	reply := idempotency.AppendDecisions(nil, h.reply)
	dst = append(binary.AppendUvarint(dst, uint64(len(reply))), reply...)
	return idempotency.AppendDecisions(dst, h.decisions)
}

// readHead returns the head of a hold; nil if there is none, or if it has expired.
func (s *scratch) readHead(name []byte) (*head, error) {
	value, e, err := s.view.Read(background, name, nil)
	switch {
	case err != nil || e.Kind == limit.None:
		return nil, err
	case len(value) < tokenHeader+8 || !bytes.HasPrefix(value, []byte(headMark)):
		return nil, errHolds
	}
	h := &head{until: int64(binary.BigEndian.Uint64(value[len(headMark):]))}
	rest := value[len(headMark)+8:]
	rest = rest[copy(h.words[:], rest):]
	h.epoch, rest = binary.BigEndian.Uint64(rest), rest[8:]
	var numbers [4]uint64
	for i := range numbers {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return nil, errHolds
		}
		numbers[i], rest = n, rest[size:]
	}
	h.settled, h.ends, h.quantity = numbers[0] == 1, int64(numbers[1]), int64(numbers[2])
	if numbers[3] > uint64(len(rest)) {
		return nil, errHolds
	}
	var ok, fits bool
	h.reply, ok = idempotency.ReadDecisions(nil, rest[:numbers[3]])
	h.decisions, fits = idempotency.ReadDecisions(nil, rest[numbers[3]:])
	if !ok || !fits {
		return nil, errHolds
	}
	if h.until <= s.now {
		return nil, nil
	}
	return h, nil
}

func (s *scratch) writeHead(name []byte, h *head) error {
	return s.view.Write(background, name, store.Value{Bytes: appendHead(nil, h)}, s.margin.after(h.until))
}

// isGone reports whether a hold was deleted with its key. first is the book of its first key.
func (h *head) isGone(first *book, now int64) bool {
	return !h.settled && h.ends > now && !first.has && (first.form == nil || first.epoch != h.epoch)
}

// hold makes a call that makes a hold.
func (v *view) hold(ctx context.Context, o *store.Once) (decisions []quota.Decision, repeated bool, err error) {
	name := v.headName(o.Keys[0], o.Token.ID)
	own := append(v.holdsNames(o.Keys), name)
	err = v.runOrJoin(ctx, &scratchRun{
		keys: append(slices.Clip(o.Keys), own...), own: len(own), absent: len(own),
		operation: func(s *scratch) error {
			return v.withHolds(s, o.Keys, o.Token.ID, func(books []*book) (err error) {
				decisions, repeated, err = v.holdIn(s, o, name, books)
				return err
			})
		},
	})
	return decisions, repeated, err
}

// holdIn is hold in a scratch that has the keys, their holds and the head.
func (v *view) holdIn(s *scratch, o *store.Once, name []byte, books []*book) ([]quota.Decision, bool, error) {
	h, err := s.readHead(name)
	if err != nil {
		return nil, false, err
	}
	if h != nil && !h.isGone(books[0], s.now) {
		switch {
		case h.words == o.Token.Words:
			return h.reply, true, nil
		case books[0].has:
			return nil, false, store.ErrIsOpen
		}
		return nil, false, store.ErrReused
	}
	for _, b := range books {
		if b.has {
			return nil, false, store.ErrIsOpen
		}
	}
	defer func(outer *scratch) { v.steps = outer }(v.steps)
	v.steps = s
	decisions, taken, err := s.holds.Hold(o, func() ([]quota.Decision, bool, error) { return o.Decide(v) })
	if err != nil || !taken {
		return decisions, false, err
	}
	ends := s.now + int64(o.HoldTime)
	return decisions, false, s.writeHead(name, &head{
		until: ends + int64(o.Token.TTL), words: o.Token.Words, epoch: books[0].epoch, ends: ends, reply: decisions,
	})
}

// Settle corrects what a hold has charged.
func (v *view) Settle(ctx context.Context, o *store.Settlement) (decisions []quota.Decision, err error) {
	keys, throttled := [][]byte{o.Key}, [][]byte(nil)
	for i := range o.Requests {
		r := &o.Requests[i]
		if !bytes.Equal(r.Key, o.Key) {
			keys = append(keys, r.Key)
		}
		if r.Rule.Kind == limit.Throttle {
			throttled = append(throttled, r.Key)
		}
	}
	name := v.headName(o.Key, o.ID)
	own := append(v.holdsNames(keys), name)
	err = v.runOrJoin(ctx, &scratchRun{keys: append(slices.Clip(keys), own...), own: len(own),
		operation: func(s *scratch) error {
			return v.withHolds(s, keys, o.ID, func(books []*book) error {
				return s.withTATs(throttled, func() (err error) {
					decisions, err = s.settle(o, name, books)
					return err
				})
			})
		}})
	return decisions, err
}

// settle is Settle in a scratch that has the keys, their holds and the head.
func (s *scratch) settle(o *store.Settlement, name []byte, books []*book) ([]quota.Decision, error) {
	o.Found, o.Repeated = false, false
	h, err := s.readHead(name)
	if err != nil {
		return nil, err
	}
	found := slices.ContainsFunc(books, func(b *book) bool { return b.has })
	// A settlement has passed over the keys that were not in its call. It is repeated although these are in the call now.
	if h != nil && (!found || h.settled && !books[0].has) && !h.isGone(books[0], s.now) {
		switch {
		case !h.settled:
			return nil, store.ErrLapsed
		case h.quantity != o.Quantity:
			return nil, store.ErrSettled(h.quantity)
		}
		o.Found, o.Repeated = true, true
		return h.decisions, nil
	}
	decisions, err := s.holds.Settle(background, o)
	if err != nil {
		return nil, err
	}
	decisions = slices.Clone(decisions) // they are in memory of the scratch, which the next step uses
	next := &head{until: s.now + int64(o.Remember), settled: true, quantity: o.Quantity, decisions: decisions}
	if h != nil && found {
		next.words, next.reply = h.words, h.reply
	}
	if next.until <= s.now {
		return decisions, nil
	}
	return decisions, s.writeHead(name, next)
}

// endHolds ends the holds of a key whose limiter a step removes or replaces.
func (v *view) endHolds(s *scratch, key []byte) error {
	name := v.holdsName(key)
	if err := s.needs(name); err != nil {
		return err
	}
	_, err := s.view.Delete(background, [][]byte{name})
	return err
}

// Holds returns the open holds of a key.
func (v *view) Holds(ctx context.Context, key []byte, count int) (list []store.Hold, err error) {
	name := v.holdsName(key)
	err = v.runOrJoin(ctx, &scratchRun{keys: [][]byte{name}, own: 1, operation: func(s *scratch) error {
		b, err := s.readBook(key, name)
		if err != nil {
			return err
		}
		list = list[:0]
		for o := range b.All() {
			if o.Ends > s.now {
				list = append(list, store.Hold{ID: string(o.ID), Quantity: o.Quantity, Ends: o.Ends})
			}
		}
		return nil
	}})
	slices.SortStableFunc(list, func(a, b store.Hold) int { return cmp.Compare(a.Ends, b.Ends) })
	return list[:min(count, len(list))], err
}

// throttleBack is Throttle for a quantity below 0.
func (v *view) throttleBack(
	ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
) (o gcra.Outcome, err error) {
	err = v.giveBack(ctx, key, true, func(s *scratch) (err error) {
		o, err = s.view.Throttle(background, key, limit, quantity, mode)
		return err
	})
	return o, err
}

// giveBack makes a refund, and updates the holds of the key.
func (v *view) giveBack(ctx context.Context, key []byte, throttles bool, operation operation) error {
	keys := [][]byte{key}
	var throttled [][]byte
	if throttles {
		throttled = keys
	}
	return v.runOrJoin(ctx, &scratchRun{keys: [][]byte{key, v.holdsName(key)}, own: 1, absent: 1,
		operation: func(s *scratch) error {
			return v.withHolds(s, keys, nil, func([]*book) error {
				return s.withTATs(throttled, func() error { return operation(s) })
			})
		}})
}

// refunds returns the keys of requests that are refunds, because a refund changes the paths of holds. For a call with
// HOLD it returns none: the holds of its keys are loaded already.
func refunds(requests []store.LimitRequest) (keys [][]byte) {
	for i := range requests {
		if r := &requests[i]; r.Quantity < 0 && !r.Held {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

var _ store.HoldKeeper = (*view)(nil)
