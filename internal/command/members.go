package command

import "cellserver/internal/store"

// Member is a member of CL.ALL: a limiter that the call names itself, or a policy for a subject.
type Member struct {
	Request         store.LimitRequest // of a limiter
	NamesPolicy     bool               // it is a policy; if not, the other fields say nothing
	Subject, Policy []byte
	Quantity        int64
}

// MemberReply is how the reply of CL.ALL shows its members.
type MemberReply struct {
	MS      bool // times are in milliseconds
	Verbose bool // a policy is shown as by CL.TAKE with VERBOSE
}

// Policies is what the family of limiters needs of the family of policies, for CL.ALL.
type Policies interface {
	// Join completes a call on all of its members, of which PEEK and the other options are set. If the
	// limits have not to be asked, there are no requests then.
	Join(c *Call, members []Member, call *LimitCall, as MemberReply) error
	// MemberWork returns the most work (see Call) of finding the limits of a subject of a policy, asking them
	// and, if verbose, showing them.
	MemberWork(snapshot any, subject, policy []byte, verbose bool) int
	// Snapshot is that of KeyRules. MemberKeys appends the names of the keys of a subject of a policy, and
	// MemberRight what the key patterns of users are checked against.
	Snapshot() any
	MemberKeys(keys [][]byte, snapshot any, subject, policy []byte) [][]byte
	MemberRight(keys [][]byte, snapshot any, subject, policy []byte) [][]byte
}
