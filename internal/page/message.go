package page

import (
	"context"
	"maps"
	"strconv"
	"strings"
)

// message is what a stream sends every second. Its size is bounded by the numbers of commands and databases,
// the length of the names in CL.TOP, and the numbers below.
type message struct {
	Time    int64             `json:"time"` // Unix milliseconds
	User    string            `json:"user"` // in quotes
	Fields  map[string]string `json:"fields"`
	Limited []topKey          `json:"limited"`
	Seen    []topKey          `json:"seen"`
	// Policies are read every policiesEvery messages.
	Policies []policyText `json:"policies"`
	// Errors holds the errors of calls, by command: NOPERM, for example, if the user has no right to it.
	Errors map[string]string `json:"errors"`
}

// topKey is an element of CL.TOP.
type topKey struct {
	Name  string `json:"name"` // in quotes
	Count int64  `json:"count"`
	Error int64  `json:"error"`
}

// policyText describes a policy.
type policyText struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
}

const (
	policiesEvery  = 10 // messages
	refusedEvery   = 60 // messages
	maxPolicies    = 20
	maxPolicyLines = 8
)

// topKeys is how many keys a stream lists.
const topKeys = 10

// sections are the sections of INFO that have the fields of the page.
var sections = []string{"server", "clients", "memory", "persistence", "stats", "cpu", "latencystats", "cell", "store",
	"policies", "envoy", "keyspace"}

// shown lists the fields of INFO that the page uses. A name with * at the end stands for all fields that begin so.
var shown = []string{
	"cellserver_version", "uptime_in_seconds", "connected_clients", "maxclients", "blocked_clients", "used_memory",
	"used_memory_rss", "used_memory_dataset", "maxmemory", "loading", "loading_loaded_perc", "journal_failing_since",
	"total_commands_processed", "total_error_replies", "rejected_connections", "expired_keys", "used_cpu_sys",
	"used_cpu_user", "latency_percentiles_usec_cl.*", "latency_percentiles_usec_gcra", "cell_decisions_*",
	"policy_decisions_*", "store_failing", "store_fails", "store_steps_waiting", "envoy_domain*", "db*",
}

// watcher makes the calls of a feed.
type watcher struct {
	caller   *caller
	now      *message
	looks    int
	policies []policyText
	// refused holds the errors of calls to which the user has no right. Such calls are repeated only after a
	// while, because each refusal is logged.
	refused map[string]string
}

// look makes the calls, and returns the message. An error means that the session has ended.
func (w *watcher) look(ctx context.Context) (*message, error) {
	in := w.caller.instance
	w.now = &message{
		Time: (in.Clock.Now() + in.Clock.Offset()) / 1e6, Fields: make(map[string]string),
		Errors: make(map[string]string),
		User:   quote([]byte(w.caller.Account.Load().Name)),
	}
	if w.looks%refusedEvery == 0 {
		w.refused = make(map[string]string)
	}
	maps.Copy(w.now.Errors, w.refused)
	err := w.ask(ctx, w.readInfo, append([]string{"INFO"}, sections...)...)
	if err == nil {
		err = w.ask(ctx, func(r reply) { w.now.Limited = readTop(r) }, "CL.TOP", "LIMITED", strconv.Itoa(topKeys))
	}
	if err == nil {
		err = w.ask(ctx, func(r reply) { w.now.Seen = readTop(r) }, "CL.TOP", "SEEN", strconv.Itoa(topKeys))
	}
	if err == nil && w.looks%policiesEvery == 0 {
		err = w.readPolicies(ctx)
	}
	w.looks++
	w.now.Policies = w.policies
	return w.now, err
}

// readPolicies describes the policies that are in force.
func (w *watcher) readPolicies(ctx context.Context) error {
	w.policies = nil
	var names []reply
	err := w.ask(ctx, func(r reply) { names = r.parts }, "CL.POLICY", "LIST")
	for _, name := range names[:min(len(names), maxPolicies)] {
		if err == nil {
			p := policyText{Name: string(name.text)}
			err = w.ask(ctx, func(r reply) { r.pairs(p.add) }, "CL.POLICY", "GET", p.Name)
			w.policies = append(w.policies, p)
		}
	}
	return err
}

// add adds a field of CL.POLICY GET to the description.
func (p *policyText) add(field string, value reply) {
	switch {
	case len(value.parts) == 0:
		return
	case field == "overrides":
		p.Lines = append(p.Lines, "overrides: "+strconv.Itoa(len(value.parts)))
	case field == "limits":
		for _, line := range value.parts {
			p.Lines = append(p.Lines, string(line.text))
		}
	default:
		for _, line := range value.parts {
			p.Lines = append(p.Lines, field+": "+string(line.text))
		}
	}
	p.Lines = p.Lines[:min(len(p.Lines), maxPolicyLines)]
}

// ask makes a call, and passes its reply to read, unless it is an error.
func (w *watcher) ask(ctx context.Context, read func(reply), words ...string) error {
	name := words[0]
	if w.refused[name] != "" {
		return nil
	}
	r, err := w.caller.call(ctx, words...)
	if err != nil {
		return err
	}
	refusal := r.failure()
	switch {
	case refusal == "":
		read(r)
		return nil
	case strings.HasPrefix(refusal, "NOPERM "):
		w.refused[name] = refusal
	}
	w.now.Errors[name] = refusal
	return nil
}

// readInfo takes the fields that the page uses.
func (w *watcher) readInfo(r reply) {
	for line := range strings.SplitSeq(string(r.text), "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found && isShown(name) {
			w.now.Fields[name] = value
		}
	}
}

func isShown(name string) bool {
	for _, pattern := range shown {
		if prefix, many := strings.CutSuffix(pattern, "*"); name == pattern || many && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func readTop(r reply) (keys []topKey) {
	for _, key := range r.parts {
		keys = append(keys, topKey{quote(key.parts[0].text), key.parts[1].number(), key.parts[2].number()})
	}
	return keys
}
