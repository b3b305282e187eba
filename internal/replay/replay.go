package replay

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/limit"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/weblog"
)

// replayCommand runs the subcommand replay.
func replayCommand(args []string, e *Environment) error {
	var o options
	rest, err := o.parse(o.replayFlags(e), args, replayUsage, e)
	if err != nil {
		return err
	}
	if err := o.complete(rest, e); err != nil {
		return err
	}
	return o.replay(e)
}

// replayFlags returns the options of the subcommand replay.
func (o *options) replayFlags(e *Environment) *pflag.FlagSet {
	f := pflag.NewFlagSet(replayName, pflag.ContinueOnError)
	f.StringVar(&o.name, "policy", "", "the policy; it need not be named if there is one")
	o.define(f, e)
	f.StringVar(&o.clients, "clients", "give-up",
		"what a refused client does: give-up, or retry when retry_after says, at most thrice")
	f.StringVar(&o.insteadOf, "instead-of", "", "the policies until now: what changes, and for whom")
	f.BoolVar(&o.table, "table", true, "count what half, and up to four times, each limit would do")
	f.IntVar(&o.maxLog, "max-log-limit", o.maxLog, "that of the server")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.html, "html", "", "also write the report to this file, as a page")
	return f
}

// complete reads the policies, and finds the files.
func (o *options) complete(args []string, e *Environment) (err error) {
	switch {
	case len(args) < 2:
		return usagef("replay needs a file with policies, and a log, or - for the standard input; see %s --help", replayName)
	case o.clients != "give-up" && o.clients != "retry":
		return usagef("--clients %s: must be give-up or retry", o.clients)
	case o.clients == "retry" && o.insteadOf != "":
		return usagef("--instead-of compares the requests of the log, one by one: it goes with --clients give-up")
	}
	o.policies = args[0]
	if o.set, o.policy, err = o.readPolicy(o.policies, o.name, e); err != nil {
		return err
	}
	if o.insteadOf != "" {
		if _, o.old, err = o.readPolicy(o.insteadOf, o.policy.Name, e); err != nil {
			return err
		}
	}
	if o.reading.Subject == "" {
		if o.reading.Subject = from(o.policy); o.reading.Subject == "" {
			return usagef("policy %s has no from: say with --subject who is limited, such as '{client_ip}'", o.policy.Name)
		}
	}
	o.reading.IPv6Prefix = o.policy.HTTP.IPv6Prefix
	o.files, err = findFiles(args[1:])
	return err
}

// readPolicy reads the policy with a name, or the only one, from a file or a folder.
func (o *options) readPolicy(path, name string, e *Environment) (set *policy.Set, p *policy.Policy, err error) {
	files, err := e.ReadPolicies(path)
	if err != nil {
		return nil, nil, err
	}
	if set, err = policy.Parse(files, policy.Options{MaxLogLimit: o.maxLog}); err != nil {
		return nil, nil, err
	}
	names := set.Names()
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	shown := strings.Join(names[:min(len(names), 20)], ", ")
	if name == "" {
		return nil, nil, usagef("name a policy of %s with --policy: %s", path, shown)
	}
	if p = set.Policy([]byte(name)); p == nil {
		return nil, nil, usagef("%s has no policy %s: it has %s", path, name, shown)
	}
	return set, p, nil
}

// from returns the template of a policy's subjects, "" if it has none.
func from(p *policy.Policy) (template string) {
	for _, part := range p.HTTP.From {
		switch part.Kind {
		case policy.ClientIP:
			template += "{client_ip}"
		case policy.Host:
			template += "{host}"
		case policy.Header:
			template += "{header." + part.Text + "}"
		case policy.HashHeader:
			template += "{hash header." + part.Text + "}"
		default:
			template += part.Text
		}
	}
	return template
}

// replay reads the log, and prints the report.
func (o *options) replay(e *Environment) error {
	log, err := o.openLog(e)
	if err != nil {
		return err
	}
	defer log.Close()
	r := &replay{o: o, e: e, log: log}
	interrupted, err := r.read()
	if err != nil {
		return err
	}
	report := r.report()
	report.Log.Interrupted = interrupted
	if err := report.write(o, e); err != nil {
		return err
	}
	return o.checkBad(log, interrupted)
}

// openLog opens the log, with the requests that the options choose.
func (o *options) openLog(e *Environment) (*weblog.Log, error) {
	log, err := weblog.Open(o.files, e.Stdin, o.reading)
	if err != nil {
		return nil, err
	}
	if len(o.statuses) > 0 && !log.Parser.HasStatus() {
		log.Close()
		return nil, usagef("--status: the log has no statuses")
	}
	log.MaxBytes, log.PerSubject = int64(o.memory), o.perSubject()
	if len(o.statuses) > 0 || o.sample > 1 {
		log.Keep = func(l *weblog.Line) bool { return o.statuses.has(l.Status) && o.sample.has(l.Subject) }
	}
	return log, nil
}

// has reports whether a subject is in the sample.
func (s sample) has(subject []byte) bool {
	if s <= 1 {
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write(subject) // no error
	n := h.Sum64()
	return (n^n>>32)*0x9e3779b97f4a7c15>>32%uint64(s) == 0
}

// checkBad returns an error if too many lines were bad, or if not all were read.
func (o *options) checkBad(log *weblog.Log, interrupted bool) error {
	switch {
	case interrupted:
		return errors.New("interrupted: the report is about the part of the log that was read")
	case float64(log.Bad) > float64(o.bad)*float64(log.Lines):
		return fmt.Errorf("%d of %d lines could not be read, more than --bad %v", log.Bad, log.Lines, o.bad.String())
	}
	return nil
}

// replay is a replay of a log.
type replay struct {
	o   *options
	e   *Environment
	log *weblog.Log

	clock   *logClock
	stores  []store.Store
	judge   *judge
	old     *judge // of --instead-of
	besides []*beside
	crowded *beside // decides as if all requests of a second came at once; nil if the result would be the same
	comings retries
	tally   tally
	failed  int64
}

// read decides all requests. It ends early at Ctrl-C.
func (r *replay) read() (interrupted bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program, in case reading blocks
	end := showProgress(r.e, r.log)
	err = r.log.Each(ctx, int64(r.o.disorder/time.Second), r.visit)
	end()
	defer r.close()
	if interrupted = ctx.Err() != nil; err == nil {
		err = r.drain(math.MaxInt64)
	}
	if err == nil && r.tally.requests == 0 {
		err = r.nothing(interrupted)
	}
	return interrupted, err
}

// nothing returns an error that explains why there was no request.
func (r *replay) nothing(interrupted bool) error {
	switch f := r.log.Faults; {
	case interrupted:
		return errors.New("interrupted before the first request")
	case len(f) > 0 && r.log.Filtered == 0:
		return fmt.Errorf("no line could be read; the first bad one is %s:%d: %s: %q", f[0].File, f[0].Line, f[0].Why,
			f[0].Text)
	}
	return fmt.Errorf("no request is left of %d lines", r.log.Lines)
}

func (r *replay) close() {
	for _, s := range r.stores {
		s.Close()
	}
}

// begin prepares the decisions, at the time of the first request.
func (r *replay) begin(unix int64) {
	second := int64(time.Second)
	r.clock = &logClock{offset: unix/second*second - 3600*second}
	r.clock.set(unix)
	newStore := func() store.Store {
		s := r.e.NewStore(r.clock)
		r.stores = append(r.stores, s)
		return s
	}
	data := newStore()
	r.judge = newJudge(r.o.policy, data)
	if r.o.old != nil {
		r.old = newJudge(r.o.old, newStore())
	}
	if r.o.table {
		for _, factor := range factors {
			r.besides = append(r.besides, newBeside(r.o.policy, factor, data, r.o.maxLog))
		}
	}
	if slices.ContainsFunc(r.o.policy.Limits, fillsWithinSeconds) {
		r.crowded = r.newCrowded(newStore)
	}
	r.tally.first = unix
}

// newCrowded returns a beside that decides as if all requests of a second came at its beginning.
func (r *replay) newCrowded(newStore func() store.Store) *beside {
	if p := r.o.policy; isOneThrottle(p) {
		return newBeside(p, 1, nil, r.o.maxLog)
	}
	return nil
}

// fillsWithinSeconds reports whether a whole limit comes back within some seconds. The result then depends on where in
// their seconds the requests are.
func fillsWithinSeconds(l policy.Limit) bool {
	const few = 5 * int64(time.Second)
	return l.Kind != limit.Quota && l.Period(0) <= few
}

// visit decides a request, and the retries before it.
func (r *replay) visit(q *weblog.Request) error {
	if r.clock == nil {
		r.begin(q.Time)
	}
	if err := r.drain(q.Time); err != nil {
		return err
	}
	t := &r.tally
	t.whole = t.whole || q.Whole
	t.requests++
	s := t.subject(q.Subject)
	s.requests++
	s.countStatus(q.Status)
	if q.Status == 429 {
		t.already++
	}
	if r.crowded != nil && !q.Missing {
		at := q.Time
		if q.Whole {
			at = q.Second * int64(time.Second)
		}
		if err := r.failure(r.crowded.count(at, q.Subject, nil, q.Quantity)); err != nil {
			return err
		}
	}
	return r.attempt(attempt{at: q.Time, first: q.Time, quantity: q.Quantity, subject: q.Subject, missing: q.Missing})
}

// drain decides the retries that are due until an instant.
func (r *replay) drain(until int64) error {
	for {
		a, ok := r.comings.next(until)
		if !ok {
			return nil
		}
		r.tally.retried++
		if err := r.attempt(a); err != nil {
			return err
		}
	}
}

// failure counts an error if a server would have replied it, because a quantity is too large. It returns any other
// error, which ends the replay.
func (r *replay) failure(err error) error {
	if errors.Is(err, quota.ErrQuantity) {
		r.failed++
		return nil
	}
	return err
}

// attempt decides a request, or a retry.
func (r *replay) attempt(a attempt) error {
	r.clock.set(a.at)
	t := &r.tally
	name := r.log.Subject(a.subject)
	v, label, err := r.decide(&a, name)
	if err != nil {
		return r.failure(err)
	}
	t.last = max(t.last, a.at)
	s := t.subjects.at(a.subject)
	if a.retries == 0 {
		if err := r.aside(&a, name, v.Refused); err != nil {
			return r.failure(err)
		}
	}
	if !v.Refused {
		if s.refused > 0 {
			t.refusalsOf(s).refusedAt = 0
		}
		if a.retries > 0 {
			t.delayed, t.delay = t.delayed+1, max(t.delay, a.at-a.first)
		}
		t.times.add(a.at, false)
		return nil
	}
	past := t.refusalsOf(s)
	r.countBan(past, &v, a.at)
	if length := past.count(a.at); length > t.longest {
		t.longest, t.longestOf = length, a.subject
	}
	if r.o.clients == "retry" && r.comings.add(a, v.RetryAfter) {
		return nil
	}
	t.limited++
	past.limited++
	t.countLabel(label)
	t.times.add(a.at, true)
	return nil
}

// decide decides an attempt. If a request has no subject, the policy's without says what happens.
func (r *replay) decide(a *attempt, name []byte) (v policy.Verdict, label string, err error) {
	if a.missing {
		if a.retries == 0 {
			r.tally.missing++
		}
		switch r.o.policy.Otherwise(policy.LacksHeader) {
		case policy.WithoutAllow:
			return v, "", nil
		case policy.WithoutRefuse:
			v.Refused, v.RetryAfter = true, quota.Never
			return v, "no subject", nil
		}
		name = []byte(policy.Shared)
	}
	return r.judge.take(name, a.quantity)
}

// aside decides a request by the old policy, and by the multiples of the limits.
func (r *replay) aside(a *attempt, name []byte, refused bool) error {
	if a.missing {
		return nil
	}
	for _, b := range r.besides {
		if err := b.count(a.at, a.subject, name, a.quantity); err != nil {
			return err
		}
	}
	if r.old == nil {
		return nil
	}
	t := &r.tally
	v, _, err := r.old.take(name, a.quantity)
	if v.Refused {
		t.before++
		t.refusalsOf(t.subjects.at(a.subject)).before++
	}
	switch {
	case refused && !v.Refused:
		t.newly++
	case !refused && v.Refused:
		t.noLonger++
	}
	return err
}

// countBan counts a ban when it begins.
func (r *replay) countBan(s *refusals, v *policy.Verdict, at int64) {
	if v.By != policy.ByBan || at < s.banned {
		return
	}
	s.banned = at + max(v.ResetAfter, 1)
	if r.tally.bans++; s.bans == 0 {
		r.tally.bannedSubject++
	}
	s.bans++
}

const replayName = "cellserver policies replay"

const replayUsage = `cellserver policies replay tells what a policy would have done to the requests of an access log.

Usage: cellserver policies replay [options] FILE|FOLDER LOG...

%s
The log may have several files, also compressed with gzip or zstd; - is the standard input. Each request is decided
as a server would decide it, at the time that the log says. Nothing is sent anywhere.

The exit status is 0, or 1 if too many lines cannot be read or the replay fails, or 2 if the command line is wrong.

Examples:
  cellserver policies replay limits.yaml --policy api --subject '{client_ip}' access.log*
  cellserver policies replay new.yaml --instead-of old.yaml --policy api access.log
  grep ' /login' access.log | cellserver policies replay limits.yaml --policy login -
`
