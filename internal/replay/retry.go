package replay

import "container/heap"

// maxRetries is how often a client tries again, and maxWaiting bounds the retries that are due later.
const (
	maxRetries = 3
	maxWaiting = 4 << 20
)

// attempt is a request, or a retry of it.
type attempt struct {
	at       int64 // Unix nanoseconds
	first    int64 // when the request came first
	quantity int64
	subject  int32
	missing  bool
	retries  int8
}

// retries are the retries to come, as a heap.
type retries []attempt

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at < r[j].at }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(attempt)) }
func (r *retries) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// add adds a retry; false if the client gives up.
func (r *retries) add(a attempt, after int64) bool {
	if after < 0 || a.retries == maxRetries || len(*r) >= maxWaiting || a.at > 1<<62-after {
		return false
	}
	a.at, a.retries = a.at+after, a.retries+1
	heap.Push(r, a)
	return true
}

// next returns the earliest retry until an instant.
func (r *retries) next(until int64) (a attempt, ok bool) {
	if len(*r) == 0 || (*r)[0].at > until {
		return a, false
	}
	return heap.Pop(r).(attempt), true
}
