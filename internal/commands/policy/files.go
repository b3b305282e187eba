package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/stats"
)

// Files has the policies in force, and reads their files again: on request, and when they change. All files
// together are accepted or refused. If they are refused, the policies in force stay.
type Files struct {
	Read    func() ([]policies.File, error) // reads the files; nil if there are none
	Options policies.Options
	Log     *slog.Logger
	Counts  *stats.PolicyDecisions // of decisions

	inForce  atomic.Pointer[policies.Set]
	mu       sync.Mutex  // held while files are read and applied
	onReload []func()    // see OnReload
	seen     digest      // of what the last Look has read
	tried    digest      // of what was applied or refused last
	failing  atomic.Bool // the files that were read last were refused; earlier policies are in force
}

// digest identifies the content of all files, or the error of reading them.
type digest [sha256.Size]byte

func digestOf(files []policies.File, err error) (d digest) {
	h := sha256.New()
	add := func(text []byte) {
		var length [8]byte
		binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write(text)
	}
	for _, f := range files {
		add([]byte(f.Name))
		add(f.Text)
	}
	if err != nil {
		h.Write([]byte(err.Error()))
	}
	h.Sum(d[:0])
	return d
}

// InForce returns the policies in force. They never change; a reload puts others in their place.
func (f *Files) InForce() *policies.Set {
	if set := f.inForce.Load(); set != nil {
		return set
	}
	return &noPolicies
}

// noPolicies is in force before others are.
var noPolicies policies.Set

const errNoFiles command.Refusal = "ERR there are no policies: the server was started without --policies"

// Load reads the files for the first time. Without files, it does nothing.
func (f *Files) Load() error {
	if f.Read == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.apply(f.Read())
	if err == nil {
		f.Log.Info("policies loaded", "policies", f.InForce().Len())
	}
	return err
}

// Reload reads the files again, at once, and returns what has changed.
func (f *Files) Reload() (changes []string, err error) {
	if f.Read == nil {
		return nil, errNoFiles
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changes, err = f.apply(f.Read())
	f.report(changes, err)
	return changes, err
}

// Look reads the files, and applies them if they have changed and two Looks in succession have read the
// same content: a program may be writing a file in steps, and the beginning of a file can be valid. Call
// Look at regular intervals. It reports files that are refused only once.
func (f *Files) Look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	files, err := f.Read()
	before := f.seen
	f.seen = digestOf(files, err)
	if f.seen == f.tried || f.seen != before {
		return
	}
	f.report(f.apply(files, err))
}

// apply puts files in force, or refuses them. f.mu must be locked.
func (f *Files) apply(files []policies.File, err error) (changes []string, _ error) {
	f.tried = digestOf(files, err)
	var next *policies.Set
	if err == nil {
		next, err = policies.Parse(files, f.Options)
	}
	if f.failing.Store(err != nil); err != nil {
		return nil, err
	}
	changes = policies.Diff(f.InForce(), next)
	f.beginCounts(next)
	f.inForce.Store(next)
	return changes, nil
}

// OnReload registers a function that is called after each reload that has put policies in force, and is not
// called for the first Load.
func (f *Files) OnReload(call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onReload = append(f.onReload, call)
}

// report logs what apply has done. The number of lines is bounded: see policies.Diff.
func (f *Files) report(changes []string, err error) {
	if err != nil {
		f.Log.Warn("the policies were not reloaded: the last valid ones stay in force", "error", oneLine(err))
		return
	}
	f.Log.Info("policies reloaded", "policies", f.InForce().Len(), "changes", len(changes))
	for _, change := range changes {
		f.Log.Info("policy " + change)
	}
	for _, call := range f.onReload {
		call()
	}
}

// oneLine returns the errors of a file as one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Info is the part of INFO about policies. Reading files may take long, so it does not lock f.mu.
func (f *Files) Info() []command.InfoPart {
	if f.Read == nil {
		return nil
	}
	return []command.InfoPart{{Section: "Policies", Write: func(_ *command.Call, out *command.InfoText) {
		out.Add("policies", f.InForce().Len())
		out.Bool("policies_failing", f.failing.Load())
		f.Counts.EachWithUse(func(policy string, n stats.Results, sampled, near int64) {
			out.Add("policy_decisions_"+policy, fmt.Sprintf(
				"allowed=%d,limited=%d,shadow=%d,banned=%d,error=%d,sampled=%d,near=%d", n[stats.Allowed], n[stats.Limited],
				n[stats.Shadow], n[stats.Banned], n[stats.Failed], sampled, near))
		})
		out.Add("policy_history_bytes", f.Counts.HistoryBytes())
	}}}
}
