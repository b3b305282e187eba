// Package policy implements CL.TAKE and CL.POLICY: limits that live in the server, and the commands
// that ban, exempt and pardon subjects. Package internal/policy has the rules; this package applies
// them to keys.
//
//	take.go      CL.TAKE. A policy becomes a decide.Part: the requests of its limits and the key of
//	             the subject's standing. Package decide does the rest, and CL.ALL gets the same parts
//	             for its members.
//	all.go       policies as members of CL.ALL: implements decide.Policies
//	exempt.go    CL.BAN, CL.EXEMPT and CL.PARDON, which change standings; plan.go has CL.PLAN, grant.go CL.GRANT,
//	             bans.go CL.BANS
//	clpolicy.go  CL.POLICY and its subcommands
//	history.go   CL.HISTORY
//	report.go    what happens when a subject reaches a threshold (notify)
//	files.go     the policies in force, and how their files are watched
//
// The policies in force are a snapshot, which a reload replaces as a whole (files.go). A call uses one
// snapshot from the check of its rights to its reply, and a transaction uses one for all of its calls.
// Otherwise a reload in between could give a user limits on keys that the user may not use.
//
// A call without options takes a shorter way while there are no standings: runTake asks the store
// itself, because the way through a decide.Call allocates.
package policy

import (
	"cellserver/internal/command"
	"cellserver/internal/decide"
	policies "cellserver/internal/policy"
)

// Family is the state that the commands share.
type Family struct {
	*decide.Decider
	Files   *Files
	Reports Reports
	prefix  string // of the names of keys
}

// Commands returns the rows of the family, in reading order.
func (f *Family) Commands() []*command.Command {
	return f.Watch([]*command.Command{f.take(), f.policy(), f.exempt(), f.ban(), f.pardon(), f.plan(), f.grant(),
		f.bans(), f.history()})
}

// Snapshot returns the policies in force: see command.KeyRules.
func (f *Family) Snapshot() any { return f.Files.InForce() }

// current returns the policies for a call: the snapshot with which its rights were checked or, in a
// transaction, its keys were found. If there was no such check, it returns the policies in force.
func (f *Family) current(c *command.Call) *policies.Set {
	if c.Snapshot != nil {
		return c.Snapshot.(*policies.Set)
	}
	return f.Files.InForce()
}

// find returns the policy with a name.
func find(set *policies.Set, name []byte) (*policies.Policy, error) {
	if p := set.Policy(name); p != nil {
		return p, nil
	}
	return nil, command.Refusal("ERR no such policy '" + command.Prefix(name, policies.MaxNameBytes) + "'")
}

// stepWork is the work (see command.Call) of a step of comparing a subject with the patterns of its policy.
const stepWork = 24

// loopSteps bounds these steps for a call of CL.TAKE on an event loop: less than a tenth of a millisecond.
const loopSteps = 4 * command.MaxLoopWork / stepWork

// treatCounted returns the subject of a call as its policy sees it, how the policy treats it, and the work of finding
// that out.
func treatCounted(p *policies.Policy, text []byte) (s policies.Subject, t policies.Treatment, work int) {
	s = p.Subject(text)
	t, steps := p.TreatCounted(s)
	return s, t, steps * stepWork
}

// limitWork is the work of a limit after the first, with which the cost of the call is counted. Showing a limit,
// with VERBOSE, takes about as much.
const limitWork = command.CallWork

// MemberWork implements decide.Policies: it returns the most work of treatCounted and of the limits of the subject.
func (f *Family) MemberWork(snapshot any, text, name []byte, verbose bool) int {
	p := snapshot.(*policies.Set).Policy(name)
	if p == nil {
		return 0
	}
	limits := p.MostLimits() - 1
	if verbose {
		limits += p.MostLimits() + 1 // and the fields
	}
	return p.MostSteps(len(text))*stepWork + limits*limitWork
}
