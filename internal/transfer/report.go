package transfer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// report counts keys by their fate.
type report struct {
	mu        sync.Mutex // held while counters change, because another goroutine prints the progress
	read      int64      // keys that were read
	strings   int64      // strings and integers that were written
	limiters  int64      // limiters that were written
	expired   int64
	unchanged int64 // keys that the destination has already, with the same content
	refusals  []*refusal
	holds     int64          // open holds that were written
	holdsLeft int64          // open holds that were left out, because servers only exchange keys
	libraries int            // libraries of functions, which cellserver does not have
	progress  func() float64 // the part of the source that has been read; nil if it is not known
}

// refusal counts the keys that were not written for one reason.
type refusal struct {
	reason string
	keys   int64
	names  []string // the names of the first keys
}

// maxNames is the number of keys that the report names for each reason. Their names are truncated
// to maxNameBytes.
const (
	maxNames     = 3
	maxNameBytes = 60
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
	i := slices.IndexFunc(r.refusals, func(o *refusal) bool { return o.reason == reason })
	if i < 0 {
		i = len(r.refusals)
		r.refusals = append(r.refusals, &refusal{reason: reason})
	}
	o := r.refusals[i]
	if o.keys++; len(o.names) < maxNames {
		o.names = append(o.names, fmt.Sprintf("%q", key[:min(len(key), maxNameBytes)]))
	}
}

// leaveHolds counts the open holds of a key, which were not written.
func (r *report) leaveHolds(it *item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdsLeft += int64(it.holds.Len())
}

// print writes the summary.
func (r *report) print(out io.Writer, verb string) {
	fmt.Fprintf(out, "%s %d keys: %d strings, %d limiters\n", verb, r.strings+r.limiters, r.strings, r.limiters)
	if r.holds > 0 {
		fmt.Fprintf(out, "and %d open holds\n", r.holds)
	}
	if r.unchanged > 0 {
		fmt.Fprintf(out, "%d keys were there already, with the same content\n", r.unchanged)
	}
	if r.expired > 0 {
		fmt.Fprintf(out, "left out: %d keys that have expired\n", r.expired)
	}
	for _, o := range r.refusals {
		more := ""
		if o.keys > maxNames {
			more = ", ..."
		}
		fmt.Fprintf(out, "left out: %d keys, %s: %s%s\n", o.keys, o.reason, strings.Join(o.names, ", "), more)
	}
	if r.holdsLeft > 0 {
		fmt.Fprintf(out, "left out: %d open holds, which are copied only with --dir, from a folder to a folder\n", r.holdsLeft)
	}
	if r.libraries > 0 {
		fmt.Fprintf(out, "left out: %d libraries of functions\n", r.libraries)
	}
}

// showProgress prints the progress at every tick, until stop is called.
func (r *report) showProgress(out io.Writer, ticks <-chan time.Time) (stop func()) {
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
