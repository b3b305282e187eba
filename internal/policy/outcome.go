package policy

// Outcome is the reply of CL.TAKE with VERBOSE as a value, for a caller in this process that would otherwise have to
// parse the reply.
type Outcome struct {
	Policy   string
	By       string // what has decided: the label of a limit, override, exemption or ban
	Allowed  bool
	Shadow   bool
	Decision [6]int64 // the five integers of a limiter, and what UPTO has taken
	Numbers  int      // how many of them there are
	Violated []string // the limits that have refused the call, named as in the RateLimit fields
	Fields   []Field
}

// Outcomes has an outcome for each policy that a call names, in their order. It keeps their memory for the
// next call.
type Outcomes struct {
	all  []Outcome
	used int
}

// All returns the outcomes. They are valid until Reset.
func (o *Outcomes) All() []Outcome { return o.all[:o.used] }

// Reset removes all outcomes.
func (o *Outcomes) Reset() { o.used = 0 }

// Add adds an outcome, which is empty.
func (o *Outcomes) Add() *Outcome {
	if o.used == len(o.all) {
		o.all = append(o.all, Outcome{})
	}
	next := &o.all[o.used]
	*next = Outcome{Violated: next.Violated[:0], Fields: next.Fields[:0]}
	o.used++
	return next
}
