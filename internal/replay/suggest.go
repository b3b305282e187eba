package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/policy"
	"cellserver/internal/weblog"
)

const suggestName = "cellserver policies suggest"

// suggestion has the options of suggest, and what it finds.
type suggestion struct {
	o        options
	subjects share // that may be limited
	requests share // that may be limited; 0 if not given
	byShare  bool
	horizon  time.Duration

	log     *weblog.Log
	events  []weblog.Request // in the order of their times
	missing int64
	traffic traffic
}

// suggestCommand runs the subcommand suggest.
func suggestCommand(args []string, e *Environment) error {
	s := suggestion{subjects: 0.01, requests: 0.001}
	f := s.flags(e)
	rest, err := s.o.parse(f, args, suggestUsage, e)
	if err != nil {
		return err
	}
	s.byShare = f.Changed("limited")
	switch {
	case len(rest) == 0:
		return usagef("suggest needs a log, or - for the standard input; see %s --help", suggestName)
	case s.byShare && f.Changed("limited-subjects"):
		return usagef("--limited and --limited-subjects are two ways to find a limit: give one")
	case s.horizon < time.Second || s.horizon > 24*time.Hour:
		return usagef("--horizon %v: must be between 1s and 24h", s.horizon)
	}
	if s.o.reading.Subject == "" {
		s.o.reading.Subject = "{client_ip}"
	}
	s.o.reading.IPv6Prefix = 64
	if s.o.files, err = findFiles(rest); err != nil {
		return err
	}
	return s.run(e)
}

// flags returns the options of the subcommand suggest.
func (s *suggestion) flags(e *Environment) *pflag.FlagSet {
	f := pflag.NewFlagSet(suggestName, pflag.ContinueOnError)
	s.o.define(f, e)
	f.StringVar(&s.o.name, "policy", "api", "the name of the policy")
	f.Var(&s.subjects, "limited-subjects", "the part of the subjects that may be limited")
	f.Var(&s.requests, "limited", "instead, the part of the requests that may be limited")
	f.DurationVar(&s.horizon, "horizon", time.Minute, "the limit is best that admits least in this time")
	return f
}

// run reads the log, and prints the policy.
func (s *suggestion) run(e *Environment) (err error) {
	if s.log, err = s.o.openLog(e); err != nil {
		return err
	}
	defer s.log.Close()
	if err := s.read(e); err != nil {
		return err
	}
	s.traffic = newTraffic(s.events, s.log.Subjects())
	coarse, best := s.climb(ladder)
	fine, _ := s.climb(between(coarse[max(best-1, 0)].rate, coarse[min(best+1, len(coarse)-1)].rate))
	chosen := s.roundest(append(fine, coarse[best]))
	text, err := s.write(coarse, best, chosen, e)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(e.Stdout, text); err != nil {
		return err
	}
	return s.o.checkBad(s.log, false)
}

// eventBytes is the memory for a request: a growing list may hold it twice, and a second list is sorted by subject.
const eventBytes = 2*48 + 16

// read reads all requests that have a subject.
func (s *suggestion) read(e *Environment) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program, in case reading blocks
	end := showProgress(e, s.log)
	err := s.log.Each(ctx, int64(s.o.disorder/time.Second), func(q *weblog.Request) error {
		switch {
		case q.Missing:
			s.missing++
		case int64(len(s.events)) > int64(s.o.memory)/eventBytes:
			return fmt.Errorf("%d requests do not fit in --maxmemory: take a part of the subjects, with --sample 1/16",
				len(s.events))
		default:
			s.events = append(s.events, *q)
		}
		return nil
	})
	end()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted: a part of the log is not enough to suggest a limit")
	case len(s.events) == 0:
		return (&replay{log: s.log}).nothing(false)
	}
	return nil
}

// climb returns the burst that is needed at each of some rates, and the index of the best row.
func (s *suggestion) climb(rates []rate) (rows []row, best int) {
	for _, r := range rates {
		one := row{rate: r}
		if s.byShare {
			one.burst = s.traffic.burstForShare(r, float64(s.requests))
		} else {
			one.burst = s.traffic.burstForSubjects(r, s.left())
		}
		if rows = append(rows, one); s.compare(one, rows[best]) < 0 {
			best = len(rows) - 1
		}
	}
	return rows, best
}

// hardly is the share by which a limit may admit more than the best limit, if its rate has fewer digits.
const hardly = 0.02

// roundest returns the best limit, or a limit that admits hardly more and has a rate of fewer digits.
func (s *suggestion) roundest(rows []row) row {
	best := slices.MinFunc(rows, s.compare)
	lasts := s.events[len(s.events)-1].Time - s.events[0].Time
	near := slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
		return r.within(s.horizon) > best.within(s.horizon)*(1+hardly) ||
			r.recovery() > lasts && best.recovery() <= lasts
	})
	return slices.MinFunc(near, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.rate.digits(), b.rate.digits()), s.compare(a, b))
	})
}

// left returns how many subjects may be limited.
func (s *suggestion) left() int {
	return int(float64(s.subjects)*float64(s.log.Subjects()) + 1e-9)
}

// compare compares two limits by the quantity that they admit within the horizon. A limit that takes longer to recover
// than the log lasts comes last: it would merely admit a fixed number of requests, and the log does not show what
// happens afterwards.
func (s *suggestion) compare(a, b row) int {
	lasts := s.events[len(s.events)-1].Time - s.events[0].Time
	if x, y := a.recovery() > lasts, b.recovery() > lasts; x != y {
		if y {
			return -1
		}
		return 1
	}
	if d := a.within(s.horizon) - b.within(s.horizon); d != 0 {
		return int(math.Copysign(1, d))
	}
	return 0
}

// replayed replays the requests with a policy.
func (s *suggestion) replayed(text string, e *Environment) (*Report, error) {
	o := s.o
	o.clients = "give-up"
	set, err := policy.Parse([]policy.File{{Name: "suggested", Text: []byte(text)}}, policy.Options{})
	if err != nil {
		return nil, fmt.Errorf("--policy %s: %w", s.o.name, err)
	}
	o.policy = set.Policy([]byte(s.o.name))
	r := &replay{o: &o, e: e, log: s.log}
	defer r.close()
	for i := range s.events {
		if err := r.visit(&s.events[i]); err != nil {
			return nil, err
		}
	}
	return r.report(), nil
}

// write writes the policy, and how it was found.
func (s *suggestion) write(rows []row, best int, chosen row, e *Environment) (text string, err error) {
	yaml := fmt.Sprintf("policies:\n  %s:\n%s    limits:\n      - throttle: {burst: %d, rate: %s}\n", s.o.name, s.from(),
		chosen.burst, chosen.rate)
	report, err := s.replayed(yaml, e)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	comment := func(format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...), 78) {
			out.WriteString("# " + line + "\n")
		}
	}
	comment("Found by %s in %s of %s, from %s to %s.", suggestName, count(report.Requests, "request"),
		count(int64(report.Subjects), "subject"), report.Log.From.Format("2006-01-02 15:04:05"),
		report.Log.To.Format("2006-01-02 15:04:05 MST"))
	if s.o.sample > 1 {
		comment("A sample: %s of the subjects.", s.o.sample.String())
	}
	out.WriteString("#\n")
	if s.byShare {
		comment("The burst at each rate that limits at most %s of the requests:", s.requests.String())
	} else {
		comment("The burst that all subjects need at each rate, except for %s of them, which is %s:", s.subjects.String(),
			number(int64(s.left())))
	}
	out.WriteString(s.table(rows, best, chosen))
	comment("The limit below admits least in %v, or hardly more. It admits what was seen, and not much more: leave room for growth.",
		s.horizon)
	s.describeOutliers(comment, report)
	out.WriteString("#\n")
	comment("Replay: %s", report.Headline)
	return out.String() + yaml, nil
}

// table shows the rows next to the best row, and the row that was chosen.
func (s *suggestion) table(rows []row, best int, chosen row) string {
	rows = slices.Clone(rows[max(best-4, 0):min(best+5, len(rows))])
	if !slices.Contains(rows, chosen) {
		rows = append(rows, chosen)
		slices.SortFunc(rows, func(a, b row) int { return int(b.rate.emission() - a.rate.emission()) })
	}
	text := fmt.Sprintf("#\n#   %12s %12s   admitted in %v\n", "rate", "burst", s.horizon)
	for _, r := range rows {
		mark := ""
		if r == chosen {
			mark = "  <- chosen"
		}
		admitted := number(int64(math.Ceil(r.within(s.horizon))))
		text += fmt.Sprintf("#   %12s %12s   %s%s\n", r.rate, number(r.burst), admitted, mark)
	}
	return text + "#\n"
}

// describeOutliers names the subjects that the limit leaves out.
func (s *suggestion) describeOutliers(comment func(format string, args ...any), r *Report) {
	if r.LimitedSubjects == 0 {
		if !s.byShare && s.left() == 0 {
			comment("Nobody is left out, because %s of %s is none: if one of them is a scraper, the limit is "+
				"too high; give a larger --limited-subjects.", s.subjects.String(), count(int64(r.Subjects), "subject"))
		}
		return
	}
	var names []string
	requests := int64(0)
	for i, top := range r.Top {
		if top.Limited == 0 {
			break
		}
		if requests += top.Requests; i < 5 {
			names = append(names, top.Subject)
		}
	}
	more, part := "", percent(requests, r.Requests)
	if r.LimitedSubjects > len(names) {
		more = ", ..."
	}
	if r.LimitedSubjects > mostShown {
		part = "more than " + part // only the subjects that are limited most are added up
	}
	comment("Left out: %s, with %s of the requests: %s%s", count(int64(r.LimitedSubjects), "subject"), part,
		strings.Join(names, ", "), more)
}

// from returns the line "from" of the policy, or "" if a server cannot find the subjects of the log in requests.
func (s *suggestion) from() string {
	line := "    from: " + strconv.Quote(s.o.reading.Subject) + "\n"
	text := "policies: {p: {limits: [{throttle: {burst: 1, rate: 1/1s}}],\n" + line + "}}\n"
	if _, err := policy.Parse([]policy.File{{Text: []byte(text)}}, policy.Options{}); err != nil {
		return ""
	}
	return line
}

const suggestUsage = `cellserver policies suggest finds a limit for the subjects of an access log, and prints it as a file
with a policy.

Usage: cellserver policies suggest [options] LOG...

%s
For a ladder of rates, it counts the burst that each subject needs, so that none of its requests is limited, and
leaves out the subjects that need most. Of these limits, it prints the one that admits least in the time of
--horizon. The comments of the file say how it was found, and whom it would have limited.

Examples:
  cellserver policies suggest access.log* > limits.yaml
  cellserver policies suggest --subject '{header.X-Api-Key}' --limited-subjects 0.1%% access.log
`
