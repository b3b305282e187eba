// Package policy implements CL.TAKE and CL.POLICY: limits that live in the server. Package
// internal/policy has all of their rules; this package applies them to keys.
//
// The policies in force are a snapshot, which a reload replaces as a whole. A call uses one snapshot.
package policy

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
)

// Family is the state that the commands share.
type Family struct {
	Read    func() ([]policies.File, error) // reads the files; nil if there are none
	Options policies.Options
	Log     *slog.Logger
	// Limiters decides the calls that are more than one step on one view.
	Limiters command.Limiters

	prefix string // of the names of keys
	set    atomic.Pointer[policies.Set]
	mu     sync.Mutex // held while files are read and applied
}

// Commands returns the rows of the family, in reading order.
func (f *Family) Commands() []*command.Command {
	return []*command.Command{f.take(), f.policy()}
}

// Reload reads the files again, and applies them as a whole. If it returns an error, the policies are those
// of before. It returns how many policies there are, and what has changed.
func (f *Family) Reload() (count int, changes []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Read == nil {
		return 0, nil, errNoFiles
	}
	files, err := f.Read()
	if err != nil {
		return 0, nil, err
	}
	next, err := policies.Parse(files, f.Options)
	if err != nil {
		return 0, nil, err
	}
	before := f.set.Load()
	if before == nil {
		before = new(policies.Set)
	}
	changes = policies.Diff(before, next)
	f.set.Store(next)
	for _, change := range changes {
		f.Log.Info("policy " + change)
	}
	return next.Len(), changes, nil
}

const errNoFiles command.Refusal = "ERR there are no policies: the server was started without --policies"

// snapshot returns the policies in force, as a command.KeyRules.Snapshot.
func (f *Family) snapshot() any { return f.set.Load() }

// current returns the policies for a call: those in force, and in a transaction those by which it has found
// the keys of its calls.
func (f *Family) current(c *command.Call) *policies.Set {
	if c.Snapshot != nil {
		return c.Snapshot.(*policies.Set)
	}
	return f.set.Load()
}

// find returns the policy with a name.
func (f *Family) find(name []byte) (*policies.Policy, error) { return findIn(f.set.Load(), name) }

// findIn returns the policy with a name in a set, which is nil if there are no policies.
func findIn(set *policies.Set, name []byte) (*policies.Policy, error) {
	if set != nil {
		if p := set.Policy(name); p != nil {
			return p, nil
		}
	}
	return nil, command.Refusal("ERR no such policy '" + command.Prefix(name, policies.MaxNameBytes) + "'")
}

// treat returns the subject of a call as its policy sees it, and how the policy treats it.
func treat(p *policies.Policy, text []byte) (policies.Subject, policies.Treatment, error) {
	s := p.Subject(text)
	t, err := p.Treat(s)
	if err != nil {
		return s, t, command.Refusal("ERR " + err.Error())
	}
	return s, t, nil
}
