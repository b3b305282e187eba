package transfer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// report counts what becomes of keys.
type report struct {
	mu       sync.Mutex // held while counters change, because another goroutine prints the progress
	read     int64      // keys
	strings  int64      // written
	limiters int64      // written
	expired  int64
	same     int64 // keys that the destination has already, with the same content
	others   []*refused
	progress func() float64 // the part of the source that has been read; nil if it is not known
}

// refused are the keys that were not written for one reason.
type refused struct {
	reason string
	keys   int64
	names  []string // of the first few
}

// namesKept is the number of keys that the report names for each reason, and longestName bounds
// their names, in bytes.
const (
	namesKept   = 3
	longestName = 60
)

// begin counts a key that was read.
func (r *report) begin() { r.count(&r.read) }

func (r *report) count(what *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*what++
}

// written counts a key that was written.
func (r *report) written(limiter bool) {
	if limiter {
		r.count(&r.limiters)
	} else {
		r.count(&r.strings)
	}
}

// refuse counts a key that was not written.
func (r *report) refuse(reason string, key []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.others, func(o *refused) bool { return o.reason == reason })
	if i < 0 {
		i = len(r.others)
		r.others = append(r.others, &refused{reason: reason})
	}
	o := r.others[i]
	if o.keys++; len(o.names) < namesKept {
		o.names = append(o.names, fmt.Sprintf("%q", key[:min(len(key), longestName)]))
	}
}

// print writes the summary.
func (r *report) print(out io.Writer, verb string) {
	fmt.Fprintf(out, "%s %d keys: %d strings, %d limiters\n", verb, r.strings+r.limiters, r.strings, r.limiters)
	if r.same > 0 {
		fmt.Fprintf(out, "%d keys were there already, with the same content\n", r.same)
	}
	if r.expired > 0 {
		fmt.Fprintf(out, "left out: %d keys that have expired\n", r.expired)
	}
	for _, o := range r.others {
		more := ""
		if o.keys > namesKept {
			more = ", ..."
		}
		fmt.Fprintf(out, "left out: %d keys, %s: %s%s\n", o.keys, o.reason, strings.Join(o.names, ", "), more)
	}
}

// show prints the progress at every tick, until the function that it returns is called.
func (r *report) show(out io.Writer, ticks <-chan time.Time) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticks:
				fmt.Fprintln(out, r.line())
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

func (r *report) line() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%d keys read, %d written", r.read, r.strings+r.limiters)
	if r.progress != nil {
		line = fmt.Sprintf("%.0f %%: %s", 100*r.progress(), line)
	}
	return line
}
