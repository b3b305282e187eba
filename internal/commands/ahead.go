package commands

import "cellserver/internal/resp"

// ahead is a window of calls that were read and wait for their answers.
type ahead struct {
	words [][]byte       // of all of them, end to end
	ends  [lookahead]int // in words: where each call ends
	count int
	next  int    // the call that is answered next
	owned bool   // what is left was copied, and outlives its batch
	long  []byte // the last call, if it is a long one, whole: then of its words only the first are here
}

// lookahead is how many calls are read before the first is answered: enough for the memory of a modern processor to fetch them
// all at once (it follows ten to sixteen loads at a time), few enough to keep the calls themselves in its first cache.
const lookahead = 16

// idleWords is the room that a session keeps between batches: an ordinary call's.
const idleWords = 16

func (a *ahead) calls() int  { return a.count }
func (a *ahead) empty() bool { return a.next == a.count }

// call is the words of one call of the window.
func (a *ahead) call(i int) [][]byte {
	start := 0
	if i > 0 {
		start = a.ends[i-1]
	}
	return a.words[start:a.ends[i]]
}

// take is the words of the next call, and if it is a long one the whole of it.
func (a *ahead) take() (words [][]byte, long []byte) {
	a.next++
	if a.empty() {
		long = a.long
	}
	return a.call(a.next - 1), long
}

// clear makes room for another window. Words that nobody needs any more must not hold on to what they point into, which may
// be a call of many megabytes.
func (a *ahead) clear() {
	clear(a.words)
	a.words, a.count, a.next, a.owned, a.long = a.words[:0], 0, 0, false, nil
}

// rest lets go of what the last window needed, when its batch is over: idle connections are many.
func (a *ahead) rest() {
	if !a.empty() {
		return
	}
	a.clear()
	if cap(a.words) > lookahead*idleWords {
		*a = ahead{}
	}
}

// fill reads calls until the window is full, or there is no whole one, or the reader fails.
func (a *ahead) fill(r *resp.Reader) error {
	for a.count < lookahead {
		words, err := r.Next()
		if words == nil {
			return err
		}
		a.words = append(a.words, words...)
		a.ends[a.count] = len(a.words)
		a.count++
		if a.long = r.Long(); a.long != nil {
			break
		}
	}
	return nil
}

// own copies the calls that are left, so that they outlive the batch that lent them.
func (a *ahead) own() {
	if a.owned {
		return
	}
	for i := a.next; i < a.count; i++ {
		words := a.call(i)
		copy(words, own(words))
	}
	a.owned = true
}
