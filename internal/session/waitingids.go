package session

import (
	"errors"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// A client whose connection breaks may repeat a call that waits, with the same ID. The new call takes the
// place of the first call. As far as the server knows, the first client may still be connected, so the first
// call is answered with an error.

// idPlace identifies the ID of a call: it belongs to a key of a database.
type idPlace struct {
	database  int
	key, name string
}

// waitingID is the ID of a call that waits.
type waitingID struct {
	idPlace
	words [16]byte
}

// replaced is the reply to a call whose place another has taken.
const replaced = "-UNBLOCKED the call was repeated with the same ID\r\n"

// settledWhileWaiting is the reply to a call with HOLD that waits when a call with SETTLE names its hold.
const settledWhileWaiting = "-UNBLOCKED the hold was settled before its call was admitted\r\n"

func newWaitingID(database int, id command.CallID) *waitingID {
	if id.Name == nil {
		return nil
	}
	return &waitingID{idPlace{database, string(id.Key), string(id.Name)}, id.Words}
}

// addID notes the ID of a call that waits, if it has one. ws.mu must be locked.
func (ws *waitingCalls) addID(w *waiter) {
	if w.id == nil {
		return
	}
	if ws.ids == nil {
		ws.ids = map[idPlace]*waiter{}
	}
	ws.ids[w.id.idPlace] = w
	ws.withIDs.Store(int64(len(ws.ids)))
}

// forgetID undoes addID. ws.mu must be locked.
func (ws *waitingCalls) forgetID(w *waiter) {
	if w.id != nil && ws.ids[w.id.idPlace] == w {
		delete(ws.ids, w.id.idPlace)
		ws.withIDs.Store(int64(len(ws.ids)))
	}
}

// IDsWait implements command.Session.
func (s *Session) IDsWait() bool { return s.instance.waiting.withIDs.Load() > 0 }

// errNotWaiting means that a call does not wait any more.
var errNotWaiting = errors.New("the call does not wait")

// TakeOver implements command.Session.
func (s *Session) TakeOver(id command.CallID, left int64) (taken bool, err error) {
	ws := &s.instance.waiting
	w, err := ws.withID(idPlace{s.database, string(id.Key), string(id.Name)}, id.Words)
	if w == nil {
		return false, err
	}
	var before *Session
	if left == 0 {
		before, err = ws.replace(w, nil, 0)
	} else {
		err = s.parkWith(w, func() (err error) {
			state := s.waiterState()
			before, err = ws.replace(w, &state, left)
			return err
		})
	}
	if err != nil {
		return false, nil // it has ended at this moment
	}
	s.instance.refuseWaiting(before, w, replaced)
	return left > 0, nil
}

// EndWait implements command.Session.
func (s *Session) EndWait(id command.CallID) {
	ws := &s.instance.waiting
	ws.mu.Lock()
	w := ws.ids[idPlace{s.database, string(id.Key), string(id.Name)}]
	ws.mu.Unlock()
	if w == nil {
		return
	}
	if before, err := ws.replace(w, nil, 0); err == nil {
		s.instance.refuseWaiting(before, w, settledWhileWaiting)
	}
}

// withID returns the call that waits with an ID; nil if there is none. If the waiting call has other words,
// the error is store.ErrReused, as if the ID were remembered.
func (ws *waitingCalls) withID(place idPlace, words [16]byte) (*waiter, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.ids[place]
	if w != nil && w.id.words != words {
		return nil, store.ErrReused
	}
	return w, nil
}

// replace gives the place of a call to another client, whose call may wait for the time left, or removes
// the call if state is nil. It returns the session that had the place.
func (ws *waitingCalls) replace(w *waiter, state *waiterState, left int64) (before *Session, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	defer ws.schedule()
	if !w.IsWaiting() {
		return nil, errNotWaiting
	}
	if before = w.session; state == nil {
		ws.remove(w)
		return before, nil
	}
	w.waiterState = *state
	ws.queue.SetDeadline(&w.Call, ws.instance.Now()+left)
	return before, nil
}
