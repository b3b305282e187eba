package decide

import (
	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// MaxRequests bounds the limits of one call, including the limits of policies.
const MaxRequests = 64

// Policies has the methods of the family of policies that CL.ALL needs, because its members may be policies.
type Policies interface {
	// Part returns what a policy adds to a call: a part, and the requests of its limits.
	Part(c *command.Call, mode quota.Mode, subject, policy []byte, quantity int64) (Part, []store.LimitRequest, error)
	// Count counts the decisions of the parts of a call; limited reports whether the call is limited. CountFailure
	// counts a call that gets an error.
	Count(c *command.Call, k *Call, limited bool)
	CountFailure(c *command.Call, k *Call)
	// WriteVerbose writes the map that CL.TAKE with VERBOSE replies.
	WriteVerbose(c *command.Call, p *Part, ms bool)

	// MemberWork returns an upper bound of the work (see command.Call) of finding the limits of a subject of a policy,
	// asking them and, if verbose is set, showing them.
	MemberWork(snapshot any, subject, policy []byte, verbose bool) int
	// Snapshot, MemberKeys and MemberRight are for command.KeyRules. MemberKeys appends the names of the keys of a
	// subject of a policy, and MemberRight the name to check against the key patterns of users.
	Snapshot() any
	MemberKeys(keys [][]byte, snapshot any, subject, policy []byte) [][]byte
	MemberRight(keys [][]byte, snapshot any, subject, policy []byte) [][]byte
	// MemberHead returns the common prefix of all keys of a subject of a policy.
	MemberHead(snapshot any, subject, policy []byte) []byte
}
