package replay

import (
	"cmp"
	"slices"
	"time"

	"cellserver/internal/weblog"
)

// Report is the result of a replay. Its JSON is described by docs/replay.schema.json.
type Report struct {
	Headline string   `json:"headline"`
	Policy   string   `json:"policy"`
	Limits   []string `json:"limits"`
	Shadow   bool     `json:"shadow,omitempty"`
	Clients  string   `json:"clients"` // what refused clients are assumed to do
	Log      Log      `json:"log"`

	Requests        int64    `json:"requests"`
	Limited         int64    `json:"limited"`
	Subjects        int      `json:"subjects"`
	LimitedSubjects int      `json:"limited_subjects"`
	Customers       []string `json:"customers"` // limited subjects whose requests nearly all succeeded
	customers       int

	By       []By      `json:"by"`
	Worst    *Minute   `json:"worst_minute,omitempty"`
	Longest  *Longest  `json:"longest,omitempty"`
	Bans     Bans      `json:"bans"`
	Retries  *Retries  `json:"retries,omitempty"`
	Missing  int64     `json:"without_subject"`
	Failed   int64     `json:"failed"` // a server would have replied an error
	Top      []Subject `json:"most_limited"`
	Table    []Row     `json:"table,omitempty"`
	Estimate *Estimate `json:"estimate,omitempty"`
	Changes  *Changes  `json:"changes,omitempty"`

	Timeline []Bin `json:"timeline"`
	width    int64
}

// Log is what was read.
type Log struct {
	Files    int            `json:"files"`
	Format   string         `json:"format"`
	Lines    int64          `json:"lines"`
	Bad      int64          `json:"bad"`
	Faults   []weblog.Fault `json:"faults,omitempty"`
	Late     int64          `json:"late"`     // further out of order than --disorder
	Filtered int64          `json:"filtered"` // left out by --status or --sample
	Already  int64          `json:"already_limited"`
	Statuses bool           `json:"has_statuses"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`

	Interrupted bool   `json:"interrupted,omitempty"` // the rest of the log was not read
	Sample      string `json:"sample,omitempty"`      // the share of subjects that was replayed
}

// By counts the refusals of a limit, or of a ban or an override.
type By struct {
	Name    string `json:"name"`
	Limited int64  `json:"limited"`
}

// Minute is the minute with the most refusals.
type Minute struct {
	At       time.Time `json:"at"`
	Requests int64     `json:"requests"`
	Limited  int64     `json:"limited"`
}

// Longest is the longest time in which a subject was refused without a break.
type Longest struct {
	Subject string  `json:"subject"`
	Seconds float64 `json:"seconds"`
}

// Bans counts bans, and the subjects that were banned.
type Bans struct {
	Count    int64 `json:"count"`
	Subjects int64 `json:"subjects"`
}

// Retries says what became of clients that tried again.
type Retries struct {
	Made    int64   `json:"made"`
	Delayed int64   `json:"delayed"` // requests that a retry admitted
	Longest float64 `json:"longest_delay_seconds"`
}

// Subject is what happened to a subject.
type Subject struct {
	Subject   string   `json:"subject"`
	Requests  int64    `json:"requests"`
	Limited   int64    `json:"limited"`
	Before    *int64   `json:"limited_before,omitempty"`
	Succeeded *float64 `json:"succeeded,omitempty"` // the part of the answers in the log that were 2xx or 3xx
	Longest   float64  `json:"longest_seconds"`
	Bans      int32    `json:"bans"`
}

// Row is a row of the table: each limit times a factor.
type Row struct {
	Factor  float64 `json:"factor"`
	Limited int64   `json:"limited"`
}

// Estimate says that the result depends on where in their seconds the requests were.
type Estimate struct {
	AtOnce *int64 `json:"limited_if_at_once,omitempty"`
}

// Changes compares with the policy of --instead-of.
type Changes struct {
	Before        int64 `json:"limited_before"`
	Newly         int64 `json:"newly_limited"`
	Admitted      int64 `json:"newly_admitted"`
	NewlySubjects int   `json:"newly_limited_subjects"`
	FreedSubjects int   `json:"newly_admitted_subjects"`
}

// Bin is a part of the time.
type Bin struct {
	At       time.Time `json:"at"`
	Requests int64     `json:"requests"`
	Limited  int64     `json:"limited"`
}

// mostShown is the number of subjects in a report.
const mostShown = 20

// report makes the report of a replay.
func (r *replay) report() *Report {
	t, p := &r.tally, r.o.policy
	out := &Report{Policy: p.Name, Shadow: p.Shadow, Clients: r.o.clients, Requests: t.requests, Limited: t.limited,
		Subjects: t.subjects.count, Bans: Bans{t.bans, t.bannedSubject}, Missing: t.missing, Failed: r.failed,
		Customers: []string{}, By: []By{}, Top: []Subject{}, Timeline: []Bin{}}
	for i := range p.Limits {
		out.Limits = append(out.Limits, p.Limits[i].String())
	}
	l := r.log
	out.Log = Log{Files: l.Files(), Format: l.Parser.Format(), Lines: l.Lines, Bad: l.Bad, Faults: l.Faults,
		Late:     l.Late,
		Filtered: l.Filtered, Already: t.already, Statuses: l.Parser.HasStatus(), From: r.at(t.first), To: r.at(t.last)}
	if r.o.sample > 1 {
		out.Log.Sample = r.o.sample.String()
	}
	for _, l := range t.labels {
		out.By = append(out.By, By{l.name, l.limited})
	}
	slices.SortFunc(out.By, func(a, b By) int {
		return cmp.Or(cmp.Compare(b.Limited, a.Limited), cmp.Compare(a.Name, b.Name))
	})
	for _, b := range r.besides {
		out.Table = append(out.Table, Row{b.factor, b.limited})
	}
	if t.times.worst.limited > 0 {
		out.Worst = &Minute{r.at(t.times.worstAt), t.times.worst.requests, t.times.worst.limited}
	}
	if r.o.clients == "retry" {
		out.Retries = &Retries{t.retried, t.delayed, secondsOf(t.delay)}
	}
	r.addEstimate(out)
	r.addSubjects(out)
	for i, b := range t.times.bins {
		out.Timeline = append(out.Timeline, Bin{r.at(t.times.start + int64(i)*t.times.width), b.requests, b.limited})
	}
	out.width = t.times.width
	out.Headline = out.headline()
	return out
}

// at returns a time in the zone of the options.
func (r *replay) at(unix int64) time.Time { return time.Unix(0, unix).In(r.o.reading.Zone) }

func secondsOf(ns int64) float64 { return float64(ns/int64(time.Millisecond)) / 1000 }

// addEstimate adds an Estimate if the result depends on where in their seconds the requests were.
func (r *replay) addEstimate(out *Report) {
	if !r.tally.whole || !slices.ContainsFunc(r.o.policy.Limits, fillsWithinSeconds) {
		return
	}
	out.Estimate = &Estimate{}
	if r.crowded != nil {
		out.Estimate.AtOnce = &r.crowded.limited
	}
}

// addSubjects adds what is said about subjects.
func (r *replay) addSubjects(out *Report) {
	t, names := &r.tally, newNames(r.hides())
	name := func(n int32) string {
		if s := string(r.log.Subject(n)); s != "" {
			return names.show(s)
		}
		return "(none)"
	}
	if t.longest > 0 {
		out.Longest = &Longest{name(t.longestOf), secondsOf(t.longest)}
	}
	changes := Changes{Before: t.before, Newly: t.newly, Admitted: t.noLonger}
	for i := range int32(t.subjects.count) {
		s := t.subjects.at(i)
		past := t.past(s)
		if past.limited > 0 {
			out.LimitedSubjects++
		}
		if s.looksLikeCustomer(&past) {
			out.customers++
		}
		if past.limited > 0 && past.before == 0 {
			changes.NewlySubjects++
		}
		if past.limited == 0 && past.before > 0 {
			changes.FreedSubjects++
		}
	}
	if r.old != nil {
		out.Changes = &changes
	}
	for _, n := range t.mostLimited(mostShown) {
		s := t.subjects.at(n)
		past := t.past(s)
		one := Subject{Subject: name(n), Requests: s.requests, Limited: past.limited, Longest: secondsOf(past.longest),
			Bans: past.bans}
		if r.old != nil {
			one.Before = &past.before
		}
		if s.answered > 0 {
			part := float64(s.succeeded) / float64(s.answered)
			one.Succeeded = &part
		}
		if s.looksLikeCustomer(&past) && len(out.Customers) < mostShown {
			out.Customers = append(out.Customers, one.Subject)
		}
		out.Top = append(out.Top, one)
	}
}

// hides reports whether the report hides subjects.
func (r *replay) hides() bool {
	return r.o.hide == "yes" || r.o.hide == "auto" && r.log.Parser.HasSecrets()
}
