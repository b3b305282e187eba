package policy

// Outcome is what CL.TAKE with VERBOSE replies, for a caller in this process that would only read the reply
// again.
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

// Reset empties an outcome, and keeps its memory.
func (o *Outcome) Reset() { *o = Outcome{Violated: o.Violated[:0], Fields: o.Fields[:0]} }
